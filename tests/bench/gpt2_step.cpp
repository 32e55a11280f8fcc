#include "tests/bench/gpt2_step.hpp"

#include <utility>

namespace shardplan::test {

sim::ModelSpec gpt2_124m() {
    sim::BlockKind block;
    block.name = "dense";
    block.attention.heads = block.attention.kv_heads = 12;
    block.attention.qk_head_dim = block.attention.v_head_dim = 64;
    block.attention.qkv_bias = block.attention.out_bias = true;
    block.ffn.width = 3072;
    block.ffn.bias = true;
    block.norms.kind = sim::NormKind::layernorm;
    block.norms.bias = true;
    sim::Part trunk;
    trunk.name = "text";
    trunk.hidden = 768;
    trunk.runs = {{0, 12}};
    trunk.norm_kind = sim::NormKind::layernorm;
    trunk.norm_bias = true;
    sim::ModelSpec model;
    model.name = "gpt2";
    model.parts = {trunk};
    model.block_kinds = {block};
    model.embedding.vocab = 50257;
    model.embedding.position_rows = 1024;
    model.embedding.positions = sim::Positions::learned;
    model.embedding.tied = true;
    return model;
}

Gpt2Step::Gpt2Step(std::shared_ptr<exec::Kernels<float>> kernels, exec::Index samples,
                   exec::Index sequence, exec::Storage storage)
    : kernels_(std::move(kernels)),
      stream_(*exec::SampleStream::make(exec::TokenSource::synthetic(1 << 20, 50257, 1), sequence,
                                        {})) {
    exec::ModelOptions options;
    options.micro_batch = samples;
    options.sequence = sequence;
    options.storage = storage;
    model_ = *exec::Model<float>::make(gpt2_124m(), options, kernels_);
    model_->parameters().start(1);
    optimizer_ = exec::DataParallel<float>::make(*kernels_, model_->parameters(), {});
    tokens_.resize(static_cast<std::size_t>(options.tokens()));
    targets_.resize(tokens_.size());
}

bool Gpt2Step::run() {
    stream_.next(tokens_, targets_);
    const auto loss = model_->train(tokens_, targets_, {1.0 / static_cast<double>(tokens()), 1.0});
    const auto report = optimizer_->step(1e-4);
    return loss && report;
}

} // namespace shardplan::test
