// Cluster files, as `cluster` shows them and as `plan` takes them in; and device descriptions.
#include "simulator/io/json.hpp"
#include "simulator/spec/cluster_check.hpp"
#include "tests/fuzz/verbs.hpp"

int main() {
    using namespace shardplan;
    auto clusters = fuzz::tree_files("topologies/clusters", ".json", 30);
    const auto samples = fuzz::tree_files("samples/clusters", ".json", 10);
    clusters.insert(clusters.end(), samples.begin(), samples.end());
    std::vector<std::string> devices;
    for (const std::string& text : fuzz::tree_files("topologies/devices", ".json", 60)) {
        devices.push_back(text);
    }
    // Where bf16 is known, so that an estimate with default precision is possible.
    std::vector<std::string> newer;
    for (const std::string& text : clusters) {
        if (text.find("V100") == std::string::npos) {
            newer.push_back(text);
        }
    }
    return fuzz::run({
        {"clusters", clusters,
         [](const std::string& text) {
             return fuzz::run_verb(plan::cli::run_cluster,
                                   plan::cli::ClusterOptions{fuzz::as_file(text), {}, {}});
         }},
        {"ways", samples,
         [](const std::string& text) {
             plan::cli::ClusterOptions options{fuzz::as_file(text), {}, {}};
             options.between = "0,45";
             return fuzz::run_verb(plan::cli::run_cluster, options);
         }},
        {"estimates", newer,
         [](const std::string& text) {
             plan::cli::EstimateOptions options;
             options.scenario.model = "llama-3-8b";
             options.scenario.cluster = fuzz::as_file(text);
             options.scenario.stack = "generic";
             options.scenario.job_fields = {{"--global-batch", "global_batch.sequences", "512"}};
             options.layout = "mb1,zero1";
             return fuzz::run_verb(plan::cli::run_estimate, options);
         }},
        {"devices", devices,
         [](const std::string& text) {
             const auto device = sim::read_described<sim::Device>(text, "device.json");
             if (!device) {
                 return fuzz::outcome_of(device);
             }
             return fuzz::outcome_of(sim::check_device(*device, "device.json"));
         }},
    });
}
