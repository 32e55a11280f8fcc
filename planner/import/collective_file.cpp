#include "planner/import/collective_file.hpp"

#include <algorithm>
#include <cmath>

#include "planner/import/build_parts.hpp"
#include "planner/import/import_text.hpp"
#include "planner/import/recognise.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/text.hpp"

namespace shardplan::plan {
namespace {

using sim::CollectiveRecord;
using sim::Error;
using sim::ErrorCode;
using sim::in_quotes;

std::string at_line(const std::string& path, std::int64_t line) {
    return line > 0 ? path + ":" + std::to_string(line) : path;
}

/// Timings of a log, with what was lost and what is wrong as problems.
void take_log(ForeignCluster&& log, const std::string& path, sim::CollectiveRecords& out) {
    out.records = std::move(log.log->records);
    for (const LostPiece& piece : log.lost) {
        out.problems.push_back({ErrorCode::bad_input, at_line(path, piece.line),
                                "lost: " + piece.what, "the other rows stand"});
    }
    for (const Diagnosis& one : log.diagnoses) {
        out.problems.push_back({ErrorCode::bad_input, at_line(path, one.line), one.what,
                                one.advice.empty() ? one.kind : one.advice});
    }
}

/// Words of records and files for one kind of link or network.
std::string underscored(std::string text) {
    std::replace(text.begin(), text.end(), '-', '_');
    return text;
}

/// Fills in what a record lacks, one record at a time.
class Completer {
public:
    /// `ranks`: of the log as a whole, for rows that do not tell; 0: none does.
    Completer(CollectiveFile& file, const TimedMachine& machine, std::int64_t ranks)
        : path_(file.path), machine_(machine), notes_(file.assumptions), inferred_(ranks) {}

    sim::Status complete(CollectiveRecord& record, bool is_log) {
        if (machine_.cluster) {
            const std::string product = record.device.value_or("");
            node_ =
                &nodes_with(*machine_.cluster, machine_.device.empty() ? product : machine_.device,
                            machine_.catalogue);
        }
        for (const auto step :
             {&Completer::collective, &Completer::device, &Completer::ranks, &Completer::network}) {
            if (const sim::Status status = (this->*step)(record, is_log); !status) {
                return status;
            }
        }
        if (is_log) {
            record.system = machine_.cluster ? machine_.cluster->name : *record.device;
        }
        return sim::Done{};
    }

private:
    [[nodiscard]] std::string where(const CollectiveRecord& record) const {
        return at_line(path_, record.line);
    }
    void note(sim::Assumption&& one) {
        if (std::find(notes_.begin(), notes_.end(), one) == notes_.end()) {
            notes_.push_back(std::move(one));
        }
    }
    [[nodiscard]] Error contradiction(const CollectiveRecord& record, const std::string& said,
                                      const std::string& given) const {
        return {ErrorCode::bad_input, where(record),
                "the timing was taken with " + said + ", --cluster has " + given,
                "name the machine it was taken on"};
    }

    sim::Status collective(CollectiveRecord& record, bool is_log) {
        if (record.collective.empty()) {
            record.collective = machine_.collective;
        }
        if (is_log && record.collective.empty()) {
            return Error{ErrorCode::bad_input, path_,
                         "the log does not say which collective was timed",
                         "add --collective NAME, as in --collective all_reduce"};
        }
        return sim::Done{};
    }

    sim::Status device(CollectiveRecord& record, bool is_log) {
        const std::string& given = node_ != nullptr ? node_->device : machine_.device;
        const std::string product = record.device.value_or("");
        if (!given.empty()) {
            if (!product.empty() && machine_.device.empty() &&
                !same_product(product, given, machine_.catalogue)) {
                Error error = contradiction(record, in_quotes(product), in_quotes(given));
                error.hint += ", or add --device NAME if this one is meant";
                return error;
            }
            record.device = given;
            return sim::Done{};
        }
        if (!is_log) {
            return sim::Done{};
        }
        if (product.empty()) {
            return Error{ErrorCode::bad_input, path_,
                         "the log does not say which devices it was taken on",
                         "add --cluster CLUSTER, or on one node --device NAME; `shardplan list "
                         "clusters` and `shardplan list devices` name what is built in"};
        }
        const auto found = find_product(product, machine_.catalogue);
        if (!found) {
            return Error{ErrorCode::not_found, path_, "no device is known as " + in_quotes(product),
                         "add --cluster CLUSTER, or on one node --device NAME"};
        }
        record.device = found->value.name;
        for (const sim::Assumption& one : found->assumptions) {
            note(sim::Assumption(one));
        }
        return sim::Done{};
    }

    sim::Status ranks(CollectiveRecord& record, bool is_log) {
        if (!is_log) {
            return sim::Done{};
        }
        const bool stated = record.gpus && !record.ranks_inferred;
        if (machine_.gpus && stated && *machine_.gpus != *record.gpus) {
            return Error{ErrorCode::bad_input, "--gpus " + std::to_string(*machine_.gpus),
                         path_ + " is of " + std::to_string(*record.gpus) + " ranks",
                         "leave --gpus out"};
        }
        if (!stated && machine_.gpus) {
            record.gpus = machine_.gpus;
            record.ranks_inferred = false;
        }
        if (!stated && !machine_.gpus && inferred_ > 0) {
            record.gpus = inferred_;
            note({"timings.gpus", std::to_string(inferred_), "the quotient of its two bandwidths",
                  "the log names no ranks; give --gpus"});
        }
        if (!record.gpus) {
            return Error{ErrorCode::bad_input, path_,
                         "the log does not say how many ranks took part", "add --gpus N"};
        }
        if (record.nodes.value_or(0) < 1) { // none, or ranks that name no host
            record.nodes.reset();
        }
        if (!record.nodes && node_ == nullptr) {
            return Error{ErrorCode::bad_input, path_,
                         "the log does not say on how many nodes its " +
                             std::to_string(*record.gpus) + " ranks ran",
                         "add --cluster with the machine, as in --cluster dgx-h100 or a file that "
                         "`shardplan cluster` reads"};
        }
        if (!record.nodes) {
            record.nodes = (*record.gpus + node_->devices - 1) / node_->devices;
            note({"timings.nodes", std::to_string(*record.nodes),
                  "ranks on every device of a node of --cluster", "the log names no hosts"});
        }
        if (!record.ranks_per_node && *record.gpus % *record.nodes == 0) {
            record.ranks_per_node = *record.gpus / *record.nodes;
        }
        if (!record.ranks_per_node) {
            return Error{ErrorCode::unsupported, path_,
                         std::to_string(*record.gpus) + " ranks on " +
                             std::to_string(*record.nodes) + " nodes are not equally many on each",
                         "measure with as many ranks on every node"};
        }
        if (node_ != nullptr && *record.ranks_per_node > node_->devices) {
            return Error{ErrorCode::bad_input, where(record),
                         "there were " + std::to_string(*record.ranks_per_node) +
                             " ranks on a node, a node of --cluster has " +
                             text::counted(node_->devices, "device"),
                         "name the machine it was taken on"};
        }
        return sim::Done{};
    }

    sim::Status network(CollectiveRecord& record, bool is_log) {
        const bool one_node = record.nodes.value_or(1) <= 1;
        sim::CollectiveFabric& fabric = record.fabric;
        if (node_ == nullptr) {
            if (is_log && !one_node) {
                return Error{ErrorCode::bad_input, path_,
                             "the log is of " + std::to_string(*record.nodes) +
                                 " nodes and does not say what cards and which network join them",
                             "add --cluster with the machine, as in --cluster dgx-h100 or a file "
                             "that `shardplan cluster` reads"};
            }
            return sim::Done{};
        }
        if (!record.intra_kind) {
            record.intra_kind = std::string(name_of(node_->scaleup.kind));
        } else if (underscored(*record.intra_kind) != name_of(node_->scaleup.kind)) {
            return contradiction(record, *record.intra_kind + " inside a node",
                                 std::string(name_of(node_->scaleup.kind)));
        }
        if (node_->scaleup.domain_devices > 0 && !fabric.nvlink_domain_gpus) {
            fabric.nvlink_domain_gpus = node_->scaleup.domain_devices;
        }
        return one_node ? sim::Status(sim::Done{}) : outside(record);
    }

    /// Cards and network of a record of several nodes.
    sim::Status outside(CollectiveRecord& record) {
        sim::CollectiveFabric& fabric = record.fabric;
        const sim::Cluster& cluster = *machine_.cluster;
        const std::string kind(name_of(cluster.fabric.kind));
        if (cluster.fabric.kind == sim::FabricKind::none) {
            return Error{ErrorCode::bad_input, path_,
                         "the timing is of " + std::to_string(*record.nodes) +
                             " nodes, and --cluster names no network between nodes",
                         "add --set cluster.fabric.kind=infiniband (or roce, efa, ethernet, ...), "
                         "or --node with a cluster that has one"};
        }
        if (!fabric.kind) {
            fabric.kind = kind;
        } else if (underscored(*fabric.kind) != kind) {
            return contradiction(record, *fabric.kind + " between nodes", kind);
        }
        // Ranks that leave devices of their node idle also leave their cards idle.
        const std::int64_t cards = std::max<std::int64_t>(
            1, node_->nics.count * record.ranks_per_node.value_or(node_->devices) / node_->devices);
        if (!fabric.nics_per_node && cards != node_->nics.count) {
            note({"timings.nics_per_node", std::to_string(cards), "as many as there were ranks",
                  "cards of devices that take no part are taken to be idle"});
        }
        const double gbit = node_->nics.per_nic.physical.value() * 8.0 / 1e9;
        if (!fabric.nics_per_node) {
            fabric.nics_per_node = cards;
        } else if (*fabric.nics_per_node != node_->nics.count) {
            return contradiction(record, text::counted(*fabric.nics_per_node, "card"),
                                 std::to_string(node_->nics.count));
        }
        if (!fabric.gbit_per_nic) {
            fabric.gbit_per_nic = gbit;
        } else if (std::abs(*fabric.gbit_per_nic / gbit - 1.0) > 0.01) {
            return contradiction(
                record, "cards of " + std::to_string(std::lround(*fabric.gbit_per_nic)) + " Gbit/s",
                std::to_string(std::lround(gbit)) + " Gbit/s");
        }
        return sim::Done{};
    }

    const std::string& path_;
    const TimedMachine& machine_;
    std::vector<sim::Assumption>& notes_;
    const sim::NodeTemplate* node_ = nullptr;
    std::int64_t inferred_ = 0;
};

/// Ranks of a log, where its rows tell. They tell by the quotient of two rounded bandwidths, so the
/// largest message decides.
std::int64_t ranks_told(const std::vector<CollectiveRecord>& records) {
    std::int64_t ranks = 0;
    std::int64_t largest = 0;
    for (const CollectiveRecord& record : records) {
        if (record.gpus && record.size_bytes.value_or(0) > largest) {
            largest = *record.size_bytes;
            ranks = *record.gpus;
        }
    }
    return ranks;
}

} // namespace

sim::Result<CollectiveFile> read_collectives(const std::string& path) {
    const auto text = sim::read_file(path);
    if (!text) {
        return text.error();
    }
    return parse_collectives(*text, path);
}

sim::Result<CollectiveFile> parse_collectives(std::string_view text, const std::string& path) {
    CollectiveFile out;
    out.path = path;
    out.input = path.substr(path.find_last_of('/') + 1) + " " + sim::content_hash(text);
    const ForeignFormat* format = recognise(text);
    if (format == nullptr) {
        auto records = sim::parse_collective_records(text, path);
        if (!records) {
            return records.error();
        }
        out.records = std::move(*records);
        return out;
    }
    auto file = read_foreign(*format, text, path);
    if (!file) {
        return file.error();
    }
    if (!file->log) {
        return Error{ErrorCode::bad_input, path,
                     "it is " + file->format + ": a machine, not timings of collectives",
                     "give a log of nccl-tests or collective records; a machine goes to --cluster"};
    }
    out.is_log = true;
    out.hosts = text::listed(file->log->hosts);
    take_log(std::move(*file), path, out.records);
    return out;
}

const sim::NodeTemplate& nodes_with(const sim::Cluster& cluster, const std::string& device,
                                    const std::vector<sim::Device>& catalogue) {
    for (const sim::NodeGroup& group : cluster.node_groups) {
        if (!device.empty() && same_product(group.node.device, device, catalogue)) {
            return group.node;
        }
    }
    return cluster.node_groups.front().node;
}

sim::Status complete_collectives(CollectiveFile& file, const TimedMachine& machine) {
    if (machine.cluster && !machine.device.empty()) {
        const std::string& own =
            nodes_with(*machine.cluster, machine.device, machine.catalogue).device;
        if (!same_product(own, machine.device, machine.catalogue)) {
            return Error{ErrorCode::bad_input, "--device " + machine.device,
                         "the devices of --cluster are " + in_quotes(own), "leave --device out"};
        }
    }
    Completer completer(file, machine, file.is_log ? ranks_told(file.records.records) : 0);
    for (CollectiveRecord& record : file.records.records) {
        if (const sim::Status status = completer.complete(record, file.is_log); !status) {
            return status;
        }
    }
    return sim::Done{};
}

} // namespace shardplan::plan
