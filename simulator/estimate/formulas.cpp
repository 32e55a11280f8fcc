#include "simulator/estimate/formulas.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace shardplan::sim {

namespace {

using Row = std::pair<std::string_view, std::string_view>;

constexpr std::string_view zero_paper = "ZeRO, arXiv 1910.02054";
constexpr std::string_view fsdp_paper = "PyTorch FSDP, arXiv 2304.11277";
constexpr std::string_view autograd =
    "tensors autograd keeps, by the stack's rules; arXiv 2205.05198 for the unfused block";
constexpr std::string_view roofline = "roofline per operator with the stack's efficiencies";
constexpr std::string_view collectives = "ring, tree and hierarchical forms on the group's links";

constexpr std::array formulas = {
    Row{"mem.weights", zero_paper},
    Row{"mem.gradients", zero_paper},
    Row{"mem.master", zero_paper},
    Row{"mem.master_weights", zero_paper},
    Row{"mem.moments", zero_paper},
    Row{"mem.optimizer_states", zero_paper},
    Row{"mem.frozen", "LoRA, arXiv 2106.09685"},
    Row{"mem.nf4", "QLoRA, arXiv 2305.14314"},
    Row{"mem.activations", autograd},
    Row{"mem.temporaries", autograd},
    Row{"mem.live_set", autograd},
    Row{"mem.logits", "the stack's loss"},
    Row{"mem.output_buffers", "pipeline buffers of the stack"},
    Row{"mem.offloaded_activations", "fraction of the layout, but for the blocks at work"},
    Row{"mem.messages", "boundary tensors of a pipeline stage"},
    Row{"mem.gathered_weights", fsdp_paper},
    Row{"mem.fsdp_root", fsdp_paper},
    Row{"mem.fsdp_units", fsdp_paper},
    Row{"mem.fsdp_gather", fsdp_paper},
    Row{"mem.fsdp_gradient", fsdp_paper},
    Row{"mem.fsdp_reduce", fsdp_paper},
    Row{"mem.fsdp_root_gradient", fsdp_paper},
    Row{"mem.zero3_units", "DeepSpeed, stage 3 life cycle"},
    Row{"mem.zero_buckets", "DeepSpeed, default bucket sizes"},
    Row{"mem.buckets", "buckets of the stack"},
    Row{"mem.bucket_copy", "data-parallel buckets of the stack"},
    Row{"mem.flat_reduction", "flattened gradients of the stack"},
    Row{"mem.step_gradient", "fp32 copy for the update"},
    Row{"mem.step_foreach", "multi-tensor update of the stack"},
    Row{"mem.workspace", "constants of the stack: cuBLAS and Transformer Engine workspaces"},
    Row{"mem.grouped_workspace", "constants of the stack"},
    Row{"mem.placeholders", "Transformer Engine, cached weight gradients"},
    Row{"mem.sp_buffer", "Megatron-LM, global memory buffer"},
    Row{"mem.allocator_slack", "replay of operator lists through PyTorch's caching allocator"},
    Row{"mem.communicators", "constants of the stack, NCCL buffers"},
    Row{"mem.context", "constants of the stack, driver and libraries"},
    Row{"time.gemm", roofline},
    Row{"time.attention", "FlashAttention work counts, arXiv 2307.08691; the stack's efficiency"},
    Row{"time.elementwise", "bytes moved by the stack's fusion over memory bandwidth"},
    Row{"time.launch", "kernels x launch cost beyond the device's time"},
    Row{"time.recompute", "forward work that runs again"},
    Row{"time.optimizer", "passes over states at memory bandwidth"},
    Row{"time.tp_comm", collectives},
    Row{"time.cp_comm", collectives},
    Row{"time.ep_comm", collectives},
    Row{"time.pp_comm", collectives},
    Row{"time.message", collectives},
    Row{"time.dp_comm", collectives},
    Row{"time.dp_step", collectives},
    Row{"time.gather", collectives},
    Row{"time.reduce", collectives},
    Row{"time.shared_link", "max-min fair shares of a link; Bertsekas and Gallager, 6.5.2"},
    Row{"time.offload", "bytes over the link between device and host"},
    Row{"time.offload_states", "bytes over the link between device and host"},
    Row{"time.bubble", "Narayanan et al. 2021, arXiv 2104.04473; Qi et al. 2023, arXiv 2401.10241"},
    Row{"time.overhead", "constant of the stack"},
};

} // namespace

std::string_view source_of_formula(std::string_view id) {
    const auto found = std::find_if(formulas.begin(), formulas.end(),
                                    [&](const Row& row) { return row.first == id; });
    return found == formulas.end() ? std::string_view{} : found->second;
}

void cite_sources(Term& term) {
    if (term.source.empty()) {
        term.source = source_of_formula(term.formula);
    }
    for (Term& child : term.children) {
        cite_sources(child);
    }
}

} // namespace shardplan::sim
