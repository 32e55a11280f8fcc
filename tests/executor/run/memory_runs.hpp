#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/io/catalogue.hpp"
#include "simulator/memory/memory.hpp"
#include "simulator/spec/placement.hpp"
#include "tests/executor/run/layouts_to_run.hpp"
#include "tests/support/builders.hpp"

/// High-water marks of runs against what the simulator expects of the executor's own stack.
namespace shardplan::test {

constexpr exec::Index memory_sequence = 64;
constexpr double memory_bar = 0.02;

/// Large enough that what pieces are filled up with does not matter. All experts are chosen for
/// every token where `all_experts`, so that ranks with experts get the same number of rows.
inline sim::ModelSpec wider(sim::ModelSpec model, bool all_experts = false) {
    model.parts[0].runs = {{0, 4}};
    model.parts[0].hidden = 64;
    sim::BlockKind& block = model.block_kinds[0];
    const bool grouped = block.attention.kv_heads < block.attention.heads;
    block.attention.heads = 8;
    block.attention.kv_heads = grouped ? 4 : 8;
    block.attention.qk_head_dim = block.attention.v_head_dim = 8;
    if (block.attention.rope_dim > 0) block.attention.rope_dim = 8;
    if (block.ffn.kind == sim::FfnKind::moe) {
        block.ffn.expert_width = 96;
        if (all_experts) block.ffn.top_k = block.ffn.experts;
    } else {
        block.ffn.width = block.ffn.gated ? 176 : 256;
    }
    model.embedding.vocab = 300;
    if (model.embedding.position_rows > 0) model.embedding.position_rows = memory_sequence;
    return model;
}

inline std::vector<sim::ClassMemory> predicted_memory(const exec::TrainingPlan& plan) {
    const auto stack = sim::load_stack(std::string(SHARDPLAN_SOURCE_DIR) +
                                       "/topologies/stacks/shardplan-cpu.json");
    EXPECT_TRUE(stack);
    sim::Job asked = job(plan.sequence, plan.global_batch);
    const bool narrow = plan.arithmetic == exec::Arithmetic::bf16;
    asked.precision.compute = narrow ? sim::Dtype::bf16 : sim::Dtype::fp32;
    asked.precision.master = sim::Dtype::fp32;
    const sim::Scenario given = scenario(plan.model, dgx_h100(1), asked, *stack);
    const sim::Resolved resolved = sim::resolve(given)->values;
    sim::MemoryCache cache;
    std::vector<sim::ClassMemory> classes;
    evaluate_memory({given, resolved, plan.tables}, plan.layout,
                    place(given, plan.layout, plan.tables), cache, classes);
    return classes;
}

constexpr std::array step_phases = {sim::Phase::forward, sim::Phase::loss, sim::Phase::backward,
                                    sim::Phase::step};
using PhaseTotals = std::array<double, step_phases.size()>;

/// What a rank held at its fullest, in all and in each phase of a step.
struct Marks {
    exec::RankMemory memory;
    double peak = 0.0;
    PhaseTotals phases{};
};

inline Marks marks_of(const exec::RankMemory& memory) {
    Marks out{memory, 0.0, {}};
    for (std::size_t p = 0; p < step_phases.size(); ++p) {
        for (const std::int64_t bytes : memory.phases[static_cast<std::size_t>(step_phases[p])])
            out.phases[p] += static_cast<double>(bytes);
        out.peak = std::max(out.peak, out.phases[p]);
    }
    return out;
}

/// Of every rank, two steps. Messages wait for ranks that the machine holds up, which is no part of
/// the layout: of several runs the lower marks are the layout's own.
inline std::vector<Marks> marks_of_run(const exec::TrainingPlan& plan, int runs) {
    std::vector<Marks> least(static_cast<std::size_t>(sim::rank_count(plan.layout)));
    for (int run = 0; run < runs; ++run) {
        std::vector<Marks> marks(least.size());
        const TinyOutcome out = train(plan, 2, [&](exec::Trainer& trainer, int rank) {
            marks[static_cast<std::size_t>(rank)] = marks_of(trainer.memory());
        });
        EXPECT_TRUE(out.status) << sim::to_text(out.status.error());
        for (std::size_t r = 0; r < least.size(); ++r) {
            if (run == 0 || marks[r].peak < least[r].peak) least[r] = marks[r];
        }
    }
    return least;
}

/// The fullest rank of a stage.
inline const Marks& fullest(const std::vector<Marks>& ranks, const sim::Layout& layout,
                            std::int64_t stage) {
    const Marks* most = nullptr;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        if (sim::coordinates_of(layout, static_cast<std::int64_t>(r)).pp != stage) continue;
        if (most == nullptr || ranks[r].peak > most->peak) most = &ranks[r];
    }
    return *most;
}

/// How far above what was held a prediction may lie. Where gradients of weights wait for passes of
/// their own, the estimate does not follow what offloading has left of them instant by instant: it
/// takes the larger figure.
inline double bar_above(const sim::Layout& layout) {
    const bool bounded = layout.offload_activations > 0 && sim::splits_backward(layout.schedule);
    return bounded ? 0.05 : memory_bar;
}

inline bool is_near(const sim::Layout& layout, double predicted, double measured) {
    return predicted >= (1.0 - memory_bar) * measured &&
           predicted <= (1.0 + bar_above(layout)) * measured;
}

/// Kind by kind at the peak, and phase by phase.
inline std::string terms_of(const sim::ClassMemory& predicted, const Marks& measured) {
    std::ostringstream text;
    text << "stage " << predicted.stage << ", predicted / held\n  peak, in the "
         << sim::name_of(predicted.peak_phase) << " / " << sim::name_of(measured.memory.peak_phase)
         << " phase: " << predicted.allocated.value.value() << " / " << measured.peak << '\n';
    for (std::size_t k = 0; k < sim::tensor_kind_count; ++k) {
        const double expected = predicted.at_peak.amounts[k].value();
        const auto held = static_cast<double>(measured.memory.peak[k]);
        const auto kind = static_cast<sim::TensorKind>(k);
        if (kind == sim::TensorKind::communicators || (expected == 0.0 && held == 0.0)) continue;
        text << "    " << sim::name_of(kind) << ": " << expected << " / " << held << '\n';
    }
    for (std::size_t p = 0; p < step_phases.size(); ++p) {
        if (measured.phases[p] == 0.0) continue;
        text << "  " << sim::name_of(step_phases[p]) << ": "
             << predicted.phase_peaks[static_cast<std::size_t>(step_phases[p])].value() << " / "
             << measured.phases[p] << '\n';
    }
    return text.str();
}

/// What is further off than the bar, stage by stage; empty: nothing.
inline std::string misses(const exec::TrainingPlan& plan, int runs) {
    const std::vector<Marks> ranks = marks_of_run(plan, runs);
    std::string text;
    for (const sim::ClassMemory& c : predicted_memory(plan)) {
        const Marks& marks = fullest(ranks, plan.layout, c.stage);
        if (!is_near(plan.layout, c.allocated.value.value(), marks.peak))
            text += terms_of(c, marks);
    }
    return text;
}

inline void expect_peaks_as_predicted(const sim::ModelSpec& model,
                                      std::span<const char* const> layouts,
                                      exec::Arithmetic arithmetic) {
    for (const char* layout : layouts) {
        TinyRun run{model, layout, arithmetic, 2};
        run.sequence = memory_sequence;
        const exec::TrainingPlan plan = training_plan(run);
        std::string missed = misses(plan, 1);
        if (!missed.empty() && plan.layout.pp > 1) missed = misses(plan, 4);
        EXPECT_EQ(missed, "") << layout
                              << (arithmetic == exec::Arithmetic::bf16 ? ", 16 bits" : "");
    }
}

} // namespace shardplan::test
