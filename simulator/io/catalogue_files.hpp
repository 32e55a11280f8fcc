#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/result.hpp"

/// How the catalogue finds its files; used by the catalogue*.cpp files.
namespace shardplan::sim::detail {

/// Folders below data_dir().
inline constexpr std::string_view device_folder = "topologies/devices";
inline constexpr std::string_view cluster_folder = "topologies/clusters";
inline constexpr std::string_view stack_folder = "topologies/stacks";
inline constexpr std::string_view fabric_folder = "topologies/fabrics";
inline constexpr std::string_view architecture_folder = "topologies/architectures";
inline constexpr std::string_view job_folder = "samples/jobs";

/// Names of the files of a folder of built-ins, without ".json", in order. Errors: no such folder.
Result<std::vector<std::string>> names_in(std::string_view folder);

/// The path of a built-in.
std::string path_of_built_in(std::string_view folder, std::string_view name);

/// Whether an argument is meant as a file: it holds a '/' or ends in ".json".
bool is_path(std::string_view name_or_path);

/// Without regard to the case of ASCII letters.
bool same_name(std::string_view a, std::string_view b);

/// The file an argument means: itself if it is a path, else the built-in of that name. `kind`
/// ("cluster") is for the Error, which names the nearest built-ins.
Result<std::string> find_file(std::string_view folder, std::string_view kind,
                              const std::string& name_or_path);

/// The Error for a name nobody knows, with the nearest ones.
Error unknown_name(std::string_view kind, std::string_view name,
                   const std::vector<std::string>& known);

} // namespace shardplan::sim::detail
