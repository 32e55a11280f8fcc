#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/result.hpp"

/// Collective records: timings of one collective that somebody measured, one JSON object per line
/// or one row of an nccl-tests log; simulator/io/schema/collective_record.md. A key that is null or
/// absent is not known; keys that are not named here are ignored.
namespace shardplan::sim {

/// The network between the nodes of a collective record.
struct CollectiveFabric {
    std::optional<std::string> kind; ///< a FabricKind; "-" counts as "_"
    std::optional<std::int64_t> nics_per_node;
    std::optional<double> gbit_per_nic; ///< Gbit/s of one card, one direction
    std::optional<std::int64_t> nvlink_domain_gpus;

    friend bool operator==(const CollectiveFabric&, const CollectiveFabric&) = default;
};

/// One timing.
struct CollectiveRecord {
    std::string id;
    std::string source;
    std::string system; ///< where it was measured; "system_id" where the record has one
    std::string curve;  ///< one system, collective, shape and setting over sizes
    std::int64_t line = 0;
    std::string collective; ///< name of a Collective: all_reduce, all_gather, ...
    /// NCCL_ALGO and NCCL_PROTO, where the record names them; else the library chooses.
    std::optional<std::string> algorithm, protocol;
    std::optional<std::string> device; ///< name in the catalogue; none: the source names no device
    bool device_assumed = false;
    std::optional<std::int64_t> nodes, gpus, ranks_per_node;
    std::optional<std::string> intra_kind; ///< nvswitch, nvlink-mesh, xgmi-mesh, pcie
    CollectiveFabric fabric;
    std::string library; ///< nccl, rccl, gloo, mpi
    std::optional<std::string> library_version, dtype;
    std::optional<std::string> env; ///< environment variables of the library, as printed
    /// As nccl-tests prints it: the whole buffer; all_gather: received over all ranks;
    /// reduce_scatter: sent over all ranks; all_to_all: what one rank sends in all.
    std::optional<std::int64_t> size_bytes;
    std::optional<double> time_us;
    std::optional<double> algbw_gbytes; ///< GB/s, size / time
    std::optional<double> busbw_gbytes; ///< GB/s, algbw x 2 (n - 1) / n and so on
    std::optional<bool> in_place;
    std::string quality; ///< measured, chart, slide, prose
    bool time_derived = false;
    bool size_assumed = false;
    bool ranks_inferred = false;
    bool fault_noted = false; ///< mistuned or broken by the source's own word
    std::optional<std::string> fault;
    bool scorable = false;

    friend bool operator==(const CollectiveRecord&, const CollectiveRecord&) = default;
};

/// What a file of collective records gave.
struct CollectiveRecords {
    std::vector<CollectiveRecord> records; ///< in the order of the file
    /// Lines that are not a record (lost, the others stand) and values of a wrong type (taken as
    /// not known); `where` is "file:line" with the pointer of the value.
    std::vector<Error> problems;

    friend bool operator==(const CollectiveRecords&, const CollectiveRecords&) = default;
};

/// Value of a variable in text like "NCCL_ALGO=Ring,Tree NCCL_PROTO=Simple"; blanks and semicolons
/// part the words, other words are passed over.
std::optional<std::string> variable_in(std::string_view env, std::string_view name);

/// Reads JSON lines; empty lines are skipped. `source_name` is used in problems.
/// Errors: no line holds a record.
Result<CollectiveRecords> parse_collective_records(std::string_view text,
                                                   std::string_view source_name);
/// The same from a file. Errors: as above, and a file that cannot be read.
Result<CollectiveRecords> read_collective_records(const std::string& path);

} // namespace shardplan::sim
