// Job files, stack files, layouts in text form and `--set`, each through a whole estimate.
#include "planner/cli/options.hpp"
#include "tests/fuzz/verbs.hpp"

namespace {

using namespace shardplan;

plan::cli::EstimateOptions base() {
    plan::cli::EstimateOptions options;
    options.scenario.model = "llama-3-8b";
    options.scenario.cluster = "dgx-h100";
    options.scenario.gpus = 16;
    options.scenario.stack = "generic";
    options.scenario.job_fields = {{"--global-batch", "global_batch.sequences", "64"}};
    options.layout = "tp2,sp,pp2,mb1,zero1";
    return options;
}

fuzz::Outcome estimate(const plan::cli::EstimateOptions& options) {
    return fuzz::run_verb(plan::cli::run_estimate, options);
}

} // namespace

int main() {
    return fuzz::run({
        {"jobs", fuzz::tree_files("samples/jobs", ".json", 30),
         [](const std::string& text) {
             auto options = base();
             options.scenario.job = fuzz::as_file(text);
             options.scenario.job_fields.clear();
             return estimate(options);
         }},
        {"stacks", fuzz::tree_files("topologies/stacks", ".json", 30),
         [](const std::string& text) {
             auto options = base();
             options.scenario.stack = fuzz::as_file(text);
             return estimate(options);
         }},
        {"layouts",
         {"tp8,sp,pp2,v2,dp1,mb1,zero1,rc=full:4", "tp2,cp2:ring,dp4,mb2,zero3,rc=selective",
          "pp4,dp4,mb1,stages=8-8-8-8,sched=1f1b", "dp16,mb1,zero2,off=opt:0.5:host",
          "tp2,ep2,etp1,dp8,mb1,order=tp-cp-ep-dp-pp"},
         [](const std::string& text) {
             auto options = base();
             options.layout = text;
             return estimate(options);
         }},
        {"settings",
         {"job.sequence.max=4096", "job.constraints.memory_cap=70 GiB", "job.constraints.tp=1,2,4",
          "model.block_kinds[0].attention.heads=32", "cluster.node_groups[0].count=2",
          "cluster.fabric.levels[0].oversubscription=2", "stack.memory.context.value=5e8",
          "stack.features=[\"te\"]", "device.peak_dense.bf16=900 TFLOP/s",
          "job.precision.compute=bf16"},
         [](const std::string& text) {
             auto options = base();
             options.scenario.sets = {text};
             return estimate(options);
         }},
    });
}
