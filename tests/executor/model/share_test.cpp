#include "executor/model/share.hpp"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "executor/model/parameters.hpp"
#include "simulator/spec/placement.hpp"
#include "tests/executor/tiny_models.hpp"

namespace shardplan::test {
namespace {

using namespace exec;

struct Parsed {
    sim::Layout layout;
    sim::LayoutTables tables;
};
Parsed parsed(const std::string& text) {
    Parsed p;
    p.layout = sim::parse_layout(text, "layout", p.tables)->layout;
    return p;
}

sim::ModelSpec four_blocks(sim::ModelSpec model) {
    model.parts[0].runs = {{0, 4}};
    return model;
}

/// Every element of the whole parameter, by the ranks that hold it.
using Cover = std::map<std::string, std::vector<int>>;
Cover cover_of(const sim::ModelSpec& model, const Parsed& p) {
    Cover cover;
    for (Index rank = 0; rank < sim::rank_count(p.layout); ++rank) {
        const auto share = share_of(model, p.layout, p.tables, rank);
        if (!share) {
            ADD_FAILURE() << share.error().what;
            return {};
        }
        for (const Parameter& one : parameter_table(model, *share).parameters) {
            auto& held = cover[one.name];
            held.resize(static_cast<std::size_t>(one.whole_rows * one.whole_columns));
            for (const RowRange& range : one.ranges) {
                for (Index row = 0; row < range.rows; ++row) {
                    for (Index c = 0; c < one.columns; ++c) {
                        held[static_cast<std::size_t>((range.first_row + row) * one.whole_columns +
                                                      one.first_column + c)] += 1;
                    }
                }
            }
        }
    }
    return cover;
}

TEST(RankShare, PartsOfAllRanksCoverEveryElementEquallyOften) {
    struct Case {
        sim::ModelSpec model;
        std::string layout;
        int tables; ///< ranks that hold an element of the token table
        int norms;
        int maps;    ///< of dense linear maps
        int experts; ///< of an element of them
    };
    const Case cases[] = {
        {tiny_gpt2(), "tp2,pp2,dp1,mb1", 2, 2, 1, 0},
        {four_blocks(tiny_gpt2(false)), "tp4,dp2,mb1", 2, 8, 2, 0},
        {four_blocks(tiny_llama()), "tp2,sp,pp2,v2,dp2,mb1", 2, 4, 2, 0},
        {four_blocks(tiny_mixtral()), "dp4,ep2,mb1", 4, 4, 4, 2},
        {four_blocks(tiny_mixtral()), "tp2,sp,dp2,ep4,etp1,mb1", 2, 4, 2, 1},
        {four_blocks(tiny_llama()), "pp4,dp1,mb1,sched=zb-h1", 1, 1, 1, 0},
        {four_blocks(tiny_llama()), "pp2,v2,dp1,mb1,sched=zb-v", 1, 1, 1, 0},
        {four_blocks(tiny_llama()), "pp2,v2,dp1,mb1,sched=dualpipe", 2, 2, 2, 0},
    };
    for (const Case& c : cases) {
        SCOPED_TRACE(c.layout);
        for (const auto& [name, held] : cover_of(c.model, parsed(c.layout))) {
            const auto has = [&name = name](const char* part) {
                return name.find(part) != std::string::npos;
            };
            if (has("bias") || has("router")) continue;
            const int want = has("table") || has("head") ? c.tables
                             : has("norm")               ? c.norms
                             : has("expert")             ? c.experts
                                                         : c.maps;
            if (has("position_table")) continue;
            EXPECT_EQ(held, std::vector<int>(held.size(), want)) << name;
        }
    }
}

TEST(RankShare, EveryElementStartsAsOnOneRank) {
    for (const sim::ModelSpec& model : {tiny_gpt2(), tiny_llama(), tiny_mixtral()}) {
        Parameters<double> whole(parameter_table(model, whole_model(model)), Storage::scalar);
        whole.start(7);
        const Parsed p = parsed("tp2,sp,pp2,dp2,mb1");
        for (Index rank = 0; rank < 8; ++rank) {
            const auto share = share_of(model, p.layout, p.tables, rank);
            ASSERT_TRUE(share);
            Parameters<double> part(parameter_table(model, *share), Storage::scalar);
            part.start(7);
            for (const Parameter& one : part.table().parameters) {
                for (const Parameter& all : whole.table().parameters) {
                    if (all.name != one.name) continue;
                    for (const RowRange& range : one.ranges) {
                        for (Index i = 0; i < range.rows * one.columns; ++i) {
                            const Index row = i / one.columns;
                            const Index column = i % one.columns;
                            ASSERT_EQ(
                                part.values()[one.offset + (range.row + row) * one.columns +
                                              column],
                                whole.values()[all.offset + (range.first_row + row) * all.columns +
                                               one.first_column + column])
                                << one.name;
                        }
                    }
                }
            }
        }
    }
}

TEST(RankShare, FillsTheVocabularyUpToTheTensorDegree) {
    sim::ModelSpec model = tiny_llama();
    model.embedding.vocab = 49;
    const Parsed p = parsed("tp2,dp1,mb1");
    const ParameterTable table = parameter_table(model, *share_of(model, p.layout, p.tables, 1));
    const Parameter& tokens = table[*table.token_table];
    EXPECT_EQ(tokens.rows, 25);
    EXPECT_EQ(tokens.ranges, (std::vector<RowRange>{{0, 24, 25}}));
}

TEST(RankShare, TheTiedTableStandsOnBothEndsOfAPipeline) {
    const sim::ModelSpec model = tiny_gpt2(true);
    const Parsed p = parsed("pp2,dp1,mb1");
    for (Index rank = 0; rank < 2; ++rank) {
        const auto share = share_of(model, p.layout, p.tables, rank);
        EXPECT_TRUE(share->table_on_two_stages);
        const ParameterTable table = parameter_table(model, *share);
        ASSERT_TRUE(table.token_table);
        EXPECT_EQ(table[*table.token_table].name, "token_table");
        EXPECT_EQ(table.head.has_value(), rank == 1);
    }
}

TEST(RankShare, RanksBeyondTheKeyHeadsHoldOneWithTheirNeighbours) {
    const sim::ModelSpec model = tiny_llama(); // four query heads of six, two key heads
    const Parsed p = parsed("tp4,dp1,mb1");
    for (Index rank = 0; rank < 4; ++rank) {
        const auto share = share_of(model, p.layout, p.tables, rank);
        ASSERT_TRUE(share);
        const ParameterTable table = parameter_table(model, *share);
        const Parameter& qkv = table[*table.blocks.front().qkv];
        const Index head = rank / 2;
        EXPECT_EQ(qkv.ranges,
                  (std::vector<RowRange>{
                      {0, 6, 6 * rank}, {6, 6, 24 + 6 * head}, {12, 6, 36 + 6 * head}}));
        EXPECT_EQ(qkv.repeats, 2);
        EXPECT_EQ(qkv.repeated_row, 6);
    }
}

TEST(RankShare, RefusesDegreesThatDoNotDivideTheModelByField) {
    const struct {
        const char* layout;
        const char* path;
    } cases[] = {{"tp3,dp1,mb1", "attention/heads"},
                 {"cp3:a2a,dp1,mb1", "tp x cp:a2a = 3 does not divide attention/heads"},
                 {"dp3,ep3,mb1", "ep3 does not divide ffn/experts"},
                 {"tp2,dp3,ep4,mb1", "ep x etp = 8 does not divide tp x cp x dp = 6"}};
    for (const auto& c : cases) {
        const Parsed p = parsed(c.layout);
        const auto share = share_of(tiny_mixtral(), p.layout, p.tables, 0);
        ASSERT_FALSE(share);
        EXPECT_NE(share.error().what.find(c.path), std::string::npos) << share.error().what;
    }
}

} // namespace
} // namespace shardplan::test
