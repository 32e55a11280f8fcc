#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/io/run_record.hpp"

/// Groups of runs that know nothing of one another. Who holds out a group to judge a fit must hold
/// out whatever shares its hidden settings.
namespace shardplan::plan {

/// The place a source names, so that two records of one place agree: repository and folder without
/// the revision ("owner/name@rev:data/a.csv" is "owner/name:data"), or the number of a paper
/// ("arXiv 2205.05198 Table 5" is "arXiv 2205.05198"); else the text as it is.
std::string place_of(std::string_view source);

/// The names of groups, those that share a place together; both in the order of the records.
std::vector<std::vector<std::string>> independent_groups(
    const std::vector<sim::RunRecord>& records);

} // namespace shardplan::plan
