#pragma once

/// What --help says about a verb beyond its flags: one line, then how to use it by example. Long
/// texts stand here, so that main.cpp is about flags.
namespace shardplan::plan::cli {

struct VerbHelp {
    const char* name;
    const char* summary;
    const char* examples;
};

namespace help {

inline constexpr VerbHelp diff = {
    "diff", "two plans term by term, largest change first",
    "  shardplan diff a.shardplan.json b.shardplan.json\n"
    "  shardplan diff plan.shardplan.json --plan-b 3\n"
    "With one file: its first plan against its second, or --plan-b.\n"};

inline constexpr VerbHelp fit = {
    "fit", "the smallest machine per method, and what turns the verdict",
    "  shardplan fit -m qwen2.5-32b -c 8xrtx4090-pcie --sequence 8192\n"
    "  shardplan fit -m llama-3-70b -c dgx-h100 --method full\n"
    "  shardplan fit -m llama-3-70b -c dgx-h100 -g 16 --method full\n"
    "  shardplan fit -m llama-3-8b -c dgx-a100 -g 8 --layout zero3,mb4\n"
    "Without --method: full training, with an 8-bit optimizer, LoRA and QLoRA. With "
    "--gpus: what\n"
    "turns the verdict there, else on the machine one step below the smallest.\n"
    "Exit code 0: it fits or nearly; 1: it does not.\n"};

inline constexpr VerbHelp calendar = {
    "calendar", "days, losses, cost and energy of the whole run",
    "  shardplan calendar plan.shardplan.json --tokens 15e12 --restart \"5 min\"\n"
    "  shardplan calendar -m llama-3-70b -c dgx-h100 -g 1024 --tokens 2e12 --planned 5% \\\n"
    "      --set \"cluster.node_groups[0].price_per_device_hour=2.5\"\n"
    "Stops come at the mean time to failure of the nodes, checkpoints at the best interval\n"
    "(Daly), unless flags say otherwise. Exit code 1: the layout does not fit.\n"};

inline constexpr VerbHelp sweep = {
    "sweep", "one or two inputs varied: table, CSV or a page with plots",
    "  shardplan sweep -m llama-3-70b -c dgx-h100 \\\n"
    "      --over gpus=64..4096,job.sequence=4096,8192 --report sweep.html\n"
    "  shardplan sweep -m llama-3-8b -c dgx-h100 -g 64 --layout tp2,sp,mb1,zero1 --csv \\\n"
    "      --over \"cluster.node_groups[0].node.nics.per_nic.physical=50..800 Gbit/s\"\n"
    "  shardplan sweep plan.shardplan.json --layout plan \\\n"
    "      --over stack.time.dp_overlap=0..1:0.25\n"
    "  shardplan sweep -m llama-3-8b -c dgx-h100 --over cluster=dgx-a100,dgx-h100,gpus=8..64\n"
    "Any input can be swept, by the path that --set takes; `gpus` is the size of the cluster, and\n"
    "`model`, `cluster` and `stack` take names or files.\n"
    "a..b doubles, a..b:c adds c, a..b:x3 multiplies. Without --layout the best layout is "
    "found\n"
    "at each point. A batch given in sequences keeps its tokens when the sequence changes.\n"};

inline constexpr VerbHelp sensitivity = {
    "sensitivity", "which inputs decide the step, and what a target would need",
    "  shardplan sensitivity plan.shardplan.json --by 20%\n"
    "  shardplan sensitivity -m llama-3-70b -c dgx-h100 -g 64 --layout tp8,sp,pp4,mb1,zero1\n"
    "  shardplan sensitivity plan.shardplan.json --efficiency 0.8 \\\n"
    "      --solve \"cluster.node_groups[0].node.nics.per_nic.physical\"\n"
    "  shardplan sensitivity plan.shardplan.json --target mfu=0.5\n"
    "Targets: efficiency (share of the step not spent waiting for communication), mfu,\n"
    "step=\"2 s\", tokens/s=1e6, tokens/s/gpu=1200. Without --solve: every input that could "
    "do\n"
    "it alone. Exit code 1: the target is out of reach.\n"};

inline constexpr VerbHelp validate = {
    "validate", "predict what was measured and compare",
    "  shardplan validate --runs runs.jsonl\n"
    "  shardplan validate --runs runs.jsonl --by stack,device\n"
    "  shardplan validate --runs runs.jsonl --json > report.json\n"
    "  shardplan validate --kernels kernels.jsonl\n"
    "  shardplan validate --collectives collectives.jsonl\n"
    "  shardplan validate --collectives nccl.log --cluster dgx-h100 --calibration mine.json\n"
    "  shardplan validate --measurement m.json --calibration mine.json\n"
    "  shardplan validate --measurement runs/*.json\n"
    "  shardplan validate --measurement plan.shardplan.json\n"};

inline constexpr VerbHelp calibrate = {
    "calibrate", "fit constants: a machine or a network to your own timings, others to runs",
    "  shardplan calibrate nccl-1-node.log nccl-4-nodes.log --cluster dgx-h100 -o mine.json\n"
    "  shardplan calibrate nccl.log --cluster topo.txt --device A100-SXM-80GB\n"
    "  shardplan calibrate sweep-1.jsonl sweep-2.jsonl -o machine.json\n"
    "  shardplan calibrate --runs runs.jsonl\n"
    "  shardplan calibrate --runs runs.jsonl --exclude my-group -o constants.json\n"
    "  shardplan estimate -m llama-3-70b -c dgx-h100 -g 64 --layout tp8,sp,pp4,mb1,zero1 \\\n"
    "      --calibration constants.json\n"
    "Groups that share a source are one. Each group is also predicted with constants fitted to "
    "the\n"
    "others. The same records give the same bytes, however many threads work.\n"};

inline constexpr VerbHelp simulate = {
    "simulate", "one step event by event: what waits for what, memory over time",
    "  shardplan simulate plan.shardplan.json --trace step.json --html step.html\n"
    "  shardplan simulate -m llama-3-70b -c dgx-h100 -g 64 --layout tp8,sp,pp4,v2,mb1,zero1\n"
    "  shardplan simulate -m llama-3-8b -c dgx-h100 -g 16 --no-collapse --stragglers 2%\n"
    "  shardplan simulate plan.shardplan.json --what-if stages=21-20-20-19\n"
    "  shardplan simulate plan.shardplan.json \\\n"
    "      --what-if \"cluster.node_groups[0].node.nics.per_nic=800 Gbit/s\"\n"
    "  shardplan simulate plan.shardplan.json --over m.json --html step.html\n"
    "A trace opens in ui.perfetto.dev, a page in any browser. Ranks that do the same are played\n"
    "once; --no-collapse plays each on its own. --what-if takes an input by the path of --set "
    "(also\n"
    "gpus, model, cluster, stack), a term of the layout or layout=...; several make one change.\n"
    "Exit code 1: the layout does not fit.\n"};

inline constexpr VerbHelp run = {
    "run", "train under a plan on CPUs, and compare the step with the estimate",
    "  shardplan run plan.shardplan.json --data text.txt --steps 100\n"
    "  shardplan run plan.shardplan.json --measure m.json --timeline\n"
    "  shardplan run plan.shardplan.json --attach\n"
    "  shardplan run plan.shardplan.json --backend mpi --ranks 4 --hostfile hosts\n"
    "The program shardplan-run-cpu trains, as one process with threads or under mpirun. Ctrl-C "
    "ends\n"
    "it after the step. With --json: its records, one JSON object per line, and one line that\n"
    "compares. Exit code 0: done or stopped; 2: the input is wrong; 3: the run failed.\n"};

inline constexpr VerbHelp completion = {"completion", "a script that completes command lines",
                                        "  source <(shardplan completion bash)\n"
                                        "  shardplan completion fish | source\n"};

} // namespace help

} // namespace shardplan::plan::cli
