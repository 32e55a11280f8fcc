#include "simulator/spec/layout.hpp"

#include <memory>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace shardplan::sim {
namespace {

Layout read(std::string_view text, LayoutTables& tables) {
    const Result<ParsedLayout> parsed = parse_layout(text, "--layout", tables);
    EXPECT_TRUE(parsed.has_value()) << text << ": " << (parsed ? "" : to_text(parsed.error()));
    return parsed ? parsed->layout : Layout{};
}

/// The canonical spelling of a text form.
std::string canonical(std::string_view text) {
    LayoutTables tables;
    return to_text(read(text, tables), tables);
}

Error refused(std::string_view text) {
    LayoutTables tables;
    const Result<ParsedLayout> parsed = parse_layout(text, "--layout", tables);
    EXPECT_FALSE(parsed.has_value()) << text;
    return parsed ? Error{} : parsed.error();
}

TEST(Layout, ReadsEveryTermOfTheDesignsExample) {
    LayoutTables tables;
    const Layout l = read(
        "tp8,sp,pp4,v2,dp16,cp2:ring,ep8,etp1,mb1,zero1,rc=full:12,off=opt:1.0:host,"
        "sched=interleaved,order=tp-cp-ep-dp-pp,stages=11-12-12-11",
        tables);
    EXPECT_EQ(l.tp, 8);
    EXPECT_TRUE(l.sp);
    EXPECT_EQ(l.pp, 4);
    EXPECT_EQ(l.chunks, 2);
    EXPECT_EQ(l.dp, 16U);
    EXPECT_EQ(l.cp, 2);
    EXPECT_EQ(l.cp_kind, CpKind::ring);
    EXPECT_EQ(l.ep, 8);
    EXPECT_EQ(l.etp, 1);
    EXPECT_EQ(l.micro_batch, 1U);
    EXPECT_EQ(l.shard, Shard::optimizer);
    EXPECT_EQ(tables.recompute(l.recompute), (RecomputePlan{Recompute::full, 12}));
    EXPECT_EQ(l.offload_optimizer, offload_scale);
    EXPECT_EQ(l.offload_tier, OffloadTier::host);
    EXPECT_EQ(l.schedule, ScheduleKind::interleaved);
    EXPECT_EQ(l.order, 0);
    EXPECT_EQ(tables.stage_map(l.stage_map).layers, (std::vector<std::int64_t>{11, 12, 12, 11}));
}

TEST(Layout, WritesTermsInCanonicalOrderAndLeavesDefaultsOut) {
    EXPECT_EQ(canonical("zero1 mb2 dp16 pp4 sp tp8"), "tp8,sp,pp4,dp16,mb2,zero1");
    EXPECT_EQ(canonical("dp8,tp1,pp1,cp1,ep1,v1,prefetch1,rc=none,sched=1f1b,zero0,wrap=block"),
              "dp8,mb1");
    EXPECT_EQ(canonical("stages=3-5,pp2,order=tp-cp-ep-pp-dp,off=act:0.25:nvme,rc=selective,"
                        "wrap=2blocks,prefetch2,noreshard,zero3:8,dp8,stack=nanotron"),
              "pp2,dp8,mb1,zero3:8,noreshard,prefetch2,wrap=2blocks,rc=selective,off=act:0.25:nvme,"
              "order=tp-cp-ep-pp-dp,stages=3-5,stack=nanotron");
}

TEST(Layout, KnowsTheNamesPeopleUseForShardingAndDegrees) {
    EXPECT_EQ(canonical("fsdp,dp8"), "dp8,mb1,zero3");
    EXPECT_EQ(canonical("hsdp8,dp64"), "dp64,mb1,zero3:8");
    EXPECT_EQ(canonical("ddp,dp8"), "dp8,mb1");
    EXPECT_EQ(canonical("TP=4,PP=2,VPP=2,MBS=2,DP=1"), "tp4,pp2,v2,dp1,mb2");
    EXPECT_EQ(canonical("cp2,dp1"), "dp1,cp2:ring,mb1");
    EXPECT_EQ(canonical("cp2:a2a,dp1"), "dp1,cp2:a2a,mb1");
    EXPECT_EQ(canonical("tp4,etp4,dp1"), "tp4,dp1,mb1");
}

TEST(Layout, TakesInterleavingForGrantedWhereChunksAreNamed) {
    LayoutTables tables;
    EXPECT_EQ(read("pp4,v2", tables).schedule, ScheduleKind::interleaved);
    EXPECT_EQ(read("pp4", tables).schedule, ScheduleKind::one_f_one_b);
    EXPECT_EQ(read("pp4,v2,sched=zb-v", tables).schedule, ScheduleKind::zb_v);
    EXPECT_EQ(canonical("pp4,v2,sched=zb-v,dp1"), "pp4,v2,dp1,mb1,sched=zb-v");
}

/// A normal form with every field drawn at random, text-representable and within 2^32 ranks.
Layout random_layout(std::mt19937& random, LayoutTables& tables) {
    const auto up_to = [&](std::uint32_t n) {
        return static_cast<std::uint32_t>(random() % (n + 1U));
    };
    Layout l;
    l.tp = static_cast<std::uint16_t>(1U + up_to(63));
    l.cp = static_cast<std::uint16_t>(1U + up_to(7));
    l.pp = static_cast<std::uint16_t>(1U + up_to(15));
    l.dp = 1U + up_to(4095);
    l.chunks = static_cast<std::uint16_t>(1U + up_to(5));
    l.ep = static_cast<std::uint16_t>(1U + up_to(63));
    l.etp = static_cast<std::uint16_t>(up_to(8));
    l.micro_batch = 1U + up_to(1023);
    l.sp = up_to(1) == 1;
    l.cp_kind = static_cast<CpKind>(up_to(2));
    l.shard = static_cast<Shard>(up_to(3));
    l.shard_group = l.shard == Shard::none ? 0 : up_to(1) * (2U + up_to(62));
    l.reshard = up_to(1) == 1;
    l.prefetch = static_cast<std::uint8_t>(1U + up_to(254));
    l.wrap = static_cast<WrapUnit>(up_to(3));
    l.schedule = static_cast<ScheduleKind>(up_to(6));
    l.order = static_cast<std::uint8_t>(up_to(119));
    l.offload_tier = static_cast<OffloadTier>(up_to(2));
    if (l.offload_tier != OffloadTier::none) {
        l.offload_optimizer = static_cast<std::uint16_t>(1U + up_to(999));
        l.offload_parameters = static_cast<std::uint16_t>(up_to(1000));
        l.offload_activations = static_cast<std::uint16_t>(up_to(1000));
    }
    l.recompute = tables.intern(
        RecomputePlan{static_cast<Recompute>(up_to(2)), static_cast<std::int64_t>(up_to(20))});
    if (up_to(1) == 1) {
        StageMap map;
        for (int i = 0; i < l.pp; ++i) {
            map.layers.push_back(1 + static_cast<std::int64_t>(up_to(30)));
        }
        l.stage_map = tables.intern(map);
    }
    if (up_to(3) == 0) {
        l.stack = tables.intern_stack(up_to(1) == 0 ? "nanotron" : "llm.c");
    }
    return normal_form(l);
}

TEST(Layout, TextReadBackGivesTheSameLayout) {
    std::mt19937 random(20260601);
    LayoutTables tables;
    for (int i = 0; i < 20000; ++i) {
        const Layout layout = random_layout(random, tables);
        const std::string text = to_text(layout, tables);
        const Result<ParsedLayout> parsed = parse_layout(text, "test", tables);
        ASSERT_TRUE(parsed.has_value()) << text << ": " << to_text(parsed.error());
        ASSERT_EQ(parsed->layout, layout) << text;
        ASSERT_TRUE(parsed->dp_given);
        ASSERT_EQ(to_text(parsed->layout, tables), text);
    }
}

TEST(Layout, EqualLayoutsHashEqualAndEveryFieldCounts) {
    std::mt19937 random(7);
    LayoutTables tables;
    std::set<std::size_t> hashes;
    std::set<std::string> texts;
    for (int i = 0; i < 5000; ++i) {
        const Layout layout = random_layout(random, tables);
        Layout copy = layout;
        ASSERT_EQ(hash_value(copy), hash_value(layout));
        hashes.insert(hash_value(layout));
        texts.insert(to_text(layout, tables));
    }
    EXPECT_EQ(hashes.size(), texts.size());
}

TEST(Layout, RefusesASecondWordOnTheSameThing) {
    const Error twice = refused("tp8,tp4");
    EXPECT_NE(twice.what.find("second time"), std::string::npos);
    EXPECT_EQ(twice.where, "--layout");
    EXPECT_FALSE(refused("zero3,fsdp").hint.empty());
    EXPECT_FALSE(refused("off=opt:0.5:host,off=opt:0.5:host").hint.empty());
}

TEST(Layout, NamesTheNearestSpellingOfAnUnknownTerm) {
    EXPECT_NE(refused("norehsard").hint.find("noreshard"), std::string::npos);
    EXPECT_NE(refused("pp4,v2,sched=interleave").hint.find("interleaved"), std::string::npos);
    EXPECT_NE(refused("rc=selectiv").hint.find("selective"), std::string::npos);
    EXPECT_NE(refused("zero4").hint.find("zero3"), std::string::npos);
}

TEST(Layout, RefusesDegreesThatAreZeroHugeOrNoNumbers) {
    EXPECT_NE(refused("tp0").what.find("at least 1"), std::string::npos);
    EXPECT_NE(refused("tp70000").what.find("at most 65535"), std::string::npos);
    EXPECT_NE(refused("tp99999999999999999999999").what.find("at most 65535"), std::string::npos);
    EXPECT_NE(refused("tp").what.find("needs a number"), std::string::npos);
    EXPECT_NE(refused("tp-4").what.find("no whole number"), std::string::npos);
    EXPECT_NE(refused("tp4.5").what.find("no whole number"), std::string::npos);
    EXPECT_NE(refused("tp=").what.find("after '='"), std::string::npos);
    EXPECT_NE(refused("tp60000,pp60000,cp60000,dp16000000").what.find("ranks"), std::string::npos);
}

TEST(Layout, RefusesTermsThatContradictThemselvesOrOneAnother) {
    for (const std::string_view text : {"sp8",
                                        "hsdp",
                                        "hsdp1",
                                        "zero0:8",
                                        "zero3:",
                                        "rc=selective:3",
                                        "off=opt:host",
                                        "off=opt:0:host",
                                        "off=opt:1.5:host",
                                        "off=opt:0.1234:host",
                                        "off=opt:1.0:none",
                                        "off=opt:1.0:host,off=act:1.0:nvme",
                                        "off=adam:1.0:host",
                                        "order=tp-cp-dp-pp",
                                        "order=tp-tp-ep-dp-pp",
                                        "stages=",
                                        "stages=3-0",
                                        "pp4,stages=8-8",
                                        "stack=",
                                        "stack=a/b",
                                        "",
                                        "  ",
                                        "tp8,,pp4",
                                        "tp8,",
                                        "prefetch256",
                                        "fsdp2",
                                        "wrap",
                                        "sched="}) {
        const Error error = refused(text);
        EXPECT_FALSE(error.what.empty()) << text;
        EXPECT_FALSE(error.hint.empty()) << text;
    }
}

TEST(Layout, RefusesNoiseWithoutFalling) {
    std::mt19937 random(3);
    const std::string letters = "tpcdzerosv=:-,.0123456789 \t\n\xff";
    int read_as_layout = 0;
    for (int i = 0; i < 20000; ++i) {
        std::string text;
        const std::size_t length = random() % 24U;
        for (std::size_t k = 0; k < length; ++k) {
            text += letters[random() % letters.size()];
        }
        LayoutTables tables;
        const Result<ParsedLayout> parsed = parse_layout(text, "noise", tables);
        if (!parsed) {
            ASSERT_EQ(parsed.error().where, "noise");
            ASSERT_FALSE(parsed.error().hint.empty()) << text;
            continue;
        }
        ++read_as_layout;
        const std::string again = to_text(parsed->layout, tables);
        ASSERT_TRUE(parse_layout(again, "again", tables).has_value()) << text << " -> " << again;
    }
    EXPECT_GT(read_as_layout, 0);
    EXPECT_FALSE(parse_layout(std::string(70000, ' '), "noise", *std::make_unique<LayoutTables>()));
}

TEST(Layout, DerivesTheDataParallelDegreeFromTheDevices) {
    LayoutTables tables;
    const auto complete = [&](std::string_view text, std::int64_t devices, bool idle = false) {
        return complete_layout(*parse_layout(text, "--layout", tables), devices, "--layout", idle);
    };
    EXPECT_EQ(complete("tp8,pp4", 512)->dp, 16U);
    EXPECT_EQ(complete("tp8,pp4,dp16", 512)->dp, 16U);
    const auto contradiction = complete("tp8,pp4,dp8", 512);
    ASSERT_FALSE(contradiction);
    EXPECT_NE(contradiction.error().what.find("256"), std::string::npos);
    EXPECT_NE(contradiction.error().what.find("512"), std::string::npos);
    EXPECT_NE(contradiction.error().hint.find("dp16"), std::string::npos);
    const auto remainder = complete("tp3", 64);
    ASSERT_FALSE(remainder);
    EXPECT_EQ(remainder.error().hint, "write tp2 or tp4, or use 63 or 66 devices");
    EXPECT_EQ(complete("tp8,pp3", 512).error().hint, "write pp2 or pp4, or use 504 or 528 devices");
    EXPECT_EQ(complete("tp5,pp3", 512).error().hint, "use 510 or 525 devices");
    EXPECT_FALSE(complete("tp8,pp16", 64));
    EXPECT_EQ(complete("tp8,dp4", 64, true)->dp, 4U);
    EXPECT_EQ(complete("tp3", 64, true)->dp, 21U);
}

TEST(Layout, CountsOrdersFromTheNeighboursOut) {
    EXPECT_EQ(order_of(0), (std::array<Dim, 5>{Dim::tp, Dim::cp, Dim::ep, Dim::dp, Dim::pp}));
    EXPECT_EQ(order_of(119), (std::array<Dim, 5>{Dim::pp, Dim::dp, Dim::ep, Dim::cp, Dim::tp}));
    std::set<std::array<Dim, 5>> all;
    for (std::uint8_t order = 0; order < 120; ++order) {
        all.insert(order_of(order));
    }
    EXPECT_EQ(all.size(), 120U);
}

} // namespace
} // namespace shardplan::sim
