#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/io/catalogue.hpp"
#include "simulator/io/run_record.hpp"
#include "simulator/spec/layout.hpp"
#include "simulator/spec/scenario.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::plan {

/// A published run in the planner's own terms.
struct Reproduction {
    sim::Scenario scenario;
    sim::Layout layout;
    sim::LayoutTables tables;
    /// Everything the record does not say and what was taken instead; paths are those of the
    /// record.
    std::vector<sim::Assumption> notes;
};

/// What is wrong with a published layout whose degrees do not multiply to the GPUs of the run, with
/// the figures: "tp 4 x pp 8 x cp 1 is 32 ranks, which do not divide the 16 GPUs". Empty where they
/// do, or where too little is stated to tell.
std::string rank_contradiction(const sim::RunRecord& record);

/// Turns run records into scenarios and layouts. Reads nothing of a record but its description: the
/// id, the group, the source and the measurements play no part. Keeps the catalogue and the stack
/// profiles it has read, so one object serves a whole file of records; not for use by several
/// threads at once.
class Reproducer {
public:
    /// Errors: data files that are missing or broken.
    static sim::Result<Reproducer> make();

    /// Errors: an essential is missing or contradicts another; `where` is "section.key" and `what`
    /// the reason for skipping the record.
    sim::Result<Reproduction> reproduce(const sim::RunRecord& record);
    /// The same with a layout that is legal: what the profile of its stack refuses of it is
    /// allowed, since it ran, and becomes a note. Errors also: the layout contradicts itself.
    sim::Result<Reproduction> reproduce_as_run(const sim::RunRecord& record);

    /// The profile of a stack, `generic` where nobody describes it. Errors: broken data files.
    sim::Result<sim::Loaded<sim::StackProfile>> stack(const std::string& name,
                                                      const std::string& version);

private:
    Reproducer() = default;
    /// A built-in node of as many devices whose links are drawn, of this device or one that differs
    /// in memory alone; nullptr: there is none.
    sim::Result<const sim::NodeTemplate*> drawn_mesh(const sim::Device& device,
                                                     std::int64_t devices);

    sim::Catalogue catalogue_;
    std::map<std::pair<std::string, std::string>, sim::Loaded<sim::StackProfile>> stacks_;
    std::optional<std::vector<sim::NodeTemplate>> drawn_; ///< read when the first mesh is asked for
};

/// Gives a node the links between the devices of a drawn one, and the hosts and PCIe switches those
/// hang on; the node's own cards are spread over them.
void draw_links(const sim::NodeTemplate& drawn, sim::NodeTemplate& node);

/// The model of a record. `stack` gives the dropout where the record does not.
sim::Result<sim::ModelSpec> model_of(const sim::RunRecord& record, const sim::StackProfile& stack,
                                     std::vector<sim::Assumption>& notes);
/// The cluster of a record: equal nodes with the links it names.
sim::Result<sim::Cluster> cluster_of(const sim::RunRecord& record, const sim::Device& device,
                                     std::vector<sim::Assumption>& notes);
/// A stack profile with the features of a record; attention follows the features and the record's
/// `flash_attention` together. `notes` name features nobody knows.
sim::StackProfile stack_of(const sim::RunRecord& record, sim::StackProfile profile,
                           std::vector<sim::Assumption>& notes);
/// Batch, precision, method and optimizer of a record.
sim::Result<sim::Job> job_of(const sim::RunRecord& record, std::vector<sim::Assumption>& notes);
/// The layout of a record; stage map and recompute plan go to `tables`.
sim::Result<sim::Layout> layout_of(const sim::RunRecord& record, const sim::StackProfile& stack,
                                   sim::LayoutTables& tables, std::vector<sim::Assumption>& notes);

} // namespace shardplan::plan
