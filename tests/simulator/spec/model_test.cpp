#include "simulator/spec/model.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "simulator/io/json.hpp"
#include "simulator/spec/model_check.hpp"
#include "simulator/spec/parameters.hpp"

namespace shardplan::sim {
namespace {

BlockKind llama_block() {
    BlockKind kind;
    kind.name = "dense";
    kind.attention.kind = AttentionKind::gqa;
    kind.attention.heads = 32;
    kind.attention.kv_heads = 8;
    kind.attention.qk_head_dim = 128;
    kind.attention.v_head_dim = 128;
    kind.attention.rope_dim = 128;
    kind.ffn.width = 14336;
    kind.ffn.gated = true;
    kind.ffn.activation = Activation::silu;
    return kind;
}

ModelSpec llama_3_8b() {
    ModelSpec model;
    model.name = "llama-3-8b";
    model.block_kinds = {llama_block()};
    Part trunk;
    trunk.name = "trunk";
    trunk.hidden = 4096;
    trunk.runs = {{0, 32}};
    model.parts = {trunk};
    model.embedding.vocab = 128256;
    return model;
}

/// A block of experts: 8 of width 16, two used, on a hidden width of 10.
BlockKind small_moe() {
    BlockKind kind;
    kind.name = "moe";
    kind.attention.kind = AttentionKind::none;
    kind.norms.pre_attention = false;
    kind.ffn.kind = FfnKind::moe;
    kind.ffn.gated = true;
    kind.ffn.experts = 8;
    kind.ffn.top_k = 2;
    kind.ffn.expert_width = 16;
    return kind;
}

ModelSpec one_block_model(const BlockKind& kind, std::int64_t hidden) {
    ModelSpec model = llama_3_8b();
    model.block_kinds = {kind};
    model.parts[0].hidden = hidden;
    model.parts[0].runs = {{0, 1}};
    return model;
}

Error error_of(const ModelSpec& model) {
    const Status status = check_model(model, "file.json");
    return status ? Error{} : status.error();
}

TEST(Model, Llama3BlockHas218112000Parameters) {
    const BlockParameters p = block_parameters(llama_block(), 4096);
    EXPECT_EQ(p.attention_matrices, 4096 * (32 + 8 + 8) * 128 + 32 * 128 * 4096);
    EXPECT_EQ(p.ffn_matrices, 3 * 4096 * 14336);
    EXPECT_EQ(p.norms, 2 * 4096);
    EXPECT_EQ(p.total(), 218112000);
}

TEST(Model, Llama3With8BillionHas8030261248Parameters) {
    const ParameterCounts counts = count_parameters(llama_3_8b());
    EXPECT_EQ(counts.total, 8030261248);
    EXPECT_EQ(counts.active, counts.total);
    EXPECT_EQ(counts.embedding, 2LL * 128256 * 4096);
    EXPECT_EQ(counts.mtp, 0);
    ASSERT_EQ(counts.block_kinds.size(), 1U);
    EXPECT_EQ(counts.block_kinds[0].per_block, 218112000);
    EXPECT_EQ(counts.block_kinds[0].blocks, 32);
}

TEST(Model, TiedTablesCountOnce) {
    ModelSpec model = llama_3_8b();
    const std::int64_t untied = count_parameters(model).total;
    model.embedding.tied = true;
    EXPECT_EQ(untied - count_parameters(model).total, 128256LL * 4096);
    EXPECT_EQ(count_parameters(model).embedding, 128256LL * 4096);
}

TEST(Model, ExpertsCountWholeInTotalAndByTopKInActive) {
    const ModelSpec model = one_block_model(small_moe(), 10);
    const BlockParameters p = block_parameters(model.block_kinds[0], 10);
    EXPECT_EQ(p.expert_matrices, 8 * 3 * 10 * 16);
    EXPECT_EQ(p.router, 10 * 8);
    EXPECT_EQ(p.norms, 10);
    const ParameterCounts counts = count_parameters(model);
    EXPECT_EQ(counts.total - counts.active, 6 * 3 * 10 * 16);
}

TEST(Model, RouterCorrectionSharedGateAndExpertBiasesCount) {
    BlockKind kind = small_moe();
    kind.ffn.router_correction = true;
    kind.ffn.router_bias = true;
    kind.ffn.shared_width = 20;
    kind.ffn.shared_gate = true;
    kind.ffn.bias = true;
    const BlockParameters p = block_parameters(kind, 10);
    EXPECT_EQ(p.router, 80 + 8 + 8 + 10);
    EXPECT_EQ(p.ffn_matrices, 3 * 10 * 20);
    EXPECT_EQ(p.ffn_bias_split, 2 * 20);
    EXPECT_EQ(p.ffn_bias_replicated, 10);
    EXPECT_EQ(p.expert_bias, 8 * (2 * 16 + 10));
}

TEST(Model, LatentAttentionOfDeepSeekV3Has187107328Parameters) {
    BlockKind kind = llama_block();
    kind.attention.kind = AttentionKind::mla;
    kind.attention.heads = kind.attention.kv_heads = 128;
    kind.attention.qk_head_dim = 192;
    kind.attention.rope_dim = 64;
    kind.attention.v_head_dim = 128;
    kind.attention.q_rank = 1536;
    kind.attention.kv_rank = 512;
    const BlockParameters p = block_parameters(kind, 7168);
    EXPECT_EQ(p.attention_replicated, 7168 * 1536 + 1536 + 7168 * (512 + 64) + 512);
    EXPECT_EQ(p.attention_matrices, 1536 * 128 * 192 + 512 * 128 * (128 + 128) + 128 * 128 * 7168);
    EXPECT_EQ(p.attention_matrices + p.attention_replicated, 187107328);
}

TEST(Model, BiasesAndQueryKeyNormsCount) {
    BlockKind kind = llama_block();
    kind.attention.qkv_bias = true;
    kind.attention.out_bias = true;
    kind.attention.sinks = true;
    kind.attention.qk_norm = QkNorm::per_head;
    BlockParameters p = block_parameters(kind, 4096);
    EXPECT_EQ(p.attention_bias, (32 + 8 + 8) * 128 + 32);
    EXPECT_EQ(p.attention_replicated, 4096 + 2 * 128);
    kind.attention.qk_norm = QkNorm::full_projection;
    p = block_parameters(kind, 4096);
    EXPECT_EQ(p.attention_replicated, 4096 + (32 + 8) * 128);
}

TEST(Model, NormsWithoutParametersCountNothing) {
    BlockKind kind = llama_block();
    kind.norms.affine = false;
    EXPECT_EQ(block_parameters(kind, 4096).norms, 0);
    kind.norms.affine = true;
    kind.norms.kind = NormKind::layernorm;
    kind.norms.bias = true;
    kind.norms.post_ffn = true;
    EXPECT_EQ(block_parameters(kind, 4096).norms, 3 * 2 * 4096);
}

TEST(Model, PredictionModulesAreCountedApart) {
    ModelSpec model = llama_3_8b();
    Part mtp;
    mtp.name = "mtp";
    mtp.role = PartRole::mtp;
    mtp.hidden = 4096;
    mtp.runs = {{0, 1}};
    model.parts.push_back(mtp);
    const ParameterCounts counts = count_parameters(model);
    EXPECT_EQ(counts.total, 8030261248);
    EXPECT_EQ(counts.mtp, 218112000 + 4096);
}

TEST(Model, NarrowTablesBringTheirProjections) {
    ModelSpec model = llama_3_8b();
    const std::int64_t wide = count_parameters(model).total;
    model.embedding.projection_width = 512;
    EXPECT_EQ(wide - count_parameters(model).total, 2LL * 128256 * (4096 - 512) - 2LL * 512 * 4096);
}

TEST(Model, VocabularyIsPaddedToTheMultipleTimesTheDegree) {
    EXPECT_EQ(padded_vocab(50257, 128, 1), 50304);
    EXPECT_EQ(padded_vocab(50257, 128, 8), 51200);
    EXPECT_EQ(padded_vocab(50304, 128, 1), 50304);
    EXPECT_EQ(padded_vocab(150003, 128, 8), 150528);
}

TEST(Model, BlocksAreFoundThroughTheirRuns) {
    Part part;
    part.runs = {{2, 3}, {0, 1}, {2, 4}};
    EXPECT_EQ(block_count(part), 8);
    EXPECT_EQ(kind_of_block(part, 2), 2);
    EXPECT_EQ(kind_of_block(part, 3), 0);
    EXPECT_EQ(kind_of_block(part, 7), 2);
    EXPECT_EQ(kind_of_block(part, 8), -1);
}

TEST(Model, SurvivesWritingAndReading) {
    ModelSpec model = llama_3_8b();
    model.block_kinds.push_back(small_moe());
    model.unknown_keys = {"surprise"};
    const auto back = read_described<ModelSpec>(write_described(model), "memory");
    ASSERT_TRUE(back) << to_text(back.error());
    EXPECT_EQ(*back, model);
}

TEST(ModelCheck, AcceptsLlama) { EXPECT_TRUE(check_model(llama_3_8b(), "file.json")); }

TEST(ModelCheck, NamesFileAndFieldOfASizeThatIsMissing) {
    ModelSpec model = llama_3_8b();
    model.block_kinds[0].ffn.width = 0;
    EXPECT_EQ(error_of(model).where, "file.json: block_kinds[0].ffn.width");
}

TEST(ModelCheck, RefusesHeadsThatCannotShareKeyValueHeads) {
    ModelSpec model = llama_3_8b();
    model.block_kinds[0].attention.kv_heads = 5;
    const Error error = error_of(model);
    EXPECT_EQ(error.where, "file.json: block_kinds[0].attention.kv_heads");
    EXPECT_EQ(error.hint, "a divisor of 32");
}

TEST(ModelCheck, RefusesARunOfAKindThatDoesNotExist) {
    ModelSpec model = llama_3_8b();
    model.parts[0].runs = {{1, 32}};
    EXPECT_EQ(error_of(model).where, "file.json: parts[0].runs[0].kind");
    model.parts[0].runs = {{-1, 32}};
    EXPECT_EQ(error_of(model).where, "file.json: parts[0].runs[0].kind");
}

TEST(ModelCheck, RefusesAModelWithoutOrWithTwoTrunks) {
    ModelSpec model = llama_3_8b();
    model.parts.push_back(model.parts[0]);
    model.parts[1].name = "again";
    EXPECT_EQ(error_of(model).where, "file.json: parts");
    model.parts.clear();
    EXPECT_EQ(error_of(model).where, "file.json: parts");
}

TEST(ModelCheck, RefusesOneKindAtTwoWidths) {
    ModelSpec model = llama_3_8b();
    Part tower = model.parts[0];
    tower.name = "tower";
    tower.role = PartRole::vision;
    tower.hidden = 1024;
    model.parts.push_back(tower);
    EXPECT_EQ(error_of(model).where, "file.json: parts[1].runs[0].kind");
}

TEST(ModelCheck, RefusesMoreExpertsPerTokenThanExperts) {
    BlockKind kind = small_moe();
    kind.ffn.top_k = 9;
    EXPECT_EQ(error_of(one_block_model(kind, 10)).where, "file.json: block_kinds[0].ffn.top_k");
}

TEST(ModelCheck, RefusesSizesWhoseProductWouldOverflow) {
    ModelSpec model = one_block_model(small_moe(), std::int64_t{1} << 28);
    model.block_kinds[0].ffn.expert_width = std::int64_t{1} << 28;
    model.block_kinds[0].ffn.experts = std::int64_t{1} << 20;
    EXPECT_EQ(count_parameters(model).total, std::numeric_limits<std::int64_t>::max());
    EXPECT_NE(error_of(model).what.find("2^62"), std::string::npos);
}

TEST(ModelCheck, HoldsEveryNumberToTheBoundsOfItsField) {
    ModelSpec model = llama_3_8b();
    model.parts[0].hidden = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(error_of(model).where, "file.json: parts[0].hidden");
    model = llama_3_8b();
    model.block_kinds[0].attention.window = -1;
    EXPECT_EQ(error_of(model).where, "file.json: block_kinds[0].attention.window");
    model = llama_3_8b();
    model.attention_dropout = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(error_of(model).where, "file.json: attention_dropout");
}

TEST(ModelCheck, RefusesTwoPartsOrKindsOfOneName) {
    ModelSpec model = llama_3_8b();
    model.block_kinds.push_back(model.block_kinds[0]);
    EXPECT_EQ(error_of(model).where, "file.json: block_kinds[1].name");
}

TEST(ModelCheck, RefusesAttentionToAPartThatDoesNotExist) {
    ModelSpec model = llama_3_8b();
    model.block_kinds[0].attention.cross_source = "encoder";
    EXPECT_EQ(error_of(model).where, "file.json: block_kinds[0].attention.cross_source");
}

} // namespace
} // namespace shardplan::sim
