#include "planner/import/catalogue_once.hpp"

#include <map>
#include <mutex>
#include <string>

#include "simulator/io/data_dir.hpp"

namespace shardplan::plan {

const sim::Result<sim::Catalogue>& catalogue_once() {
    static std::mutex busy;
    static std::map<std::string, sim::Result<sim::Catalogue>> read;
    const std::string folder = sim::data_dir();
    const std::lock_guard<std::mutex> lock(busy);
    const auto known = read.find(folder);
    return known != read.end() ? known->second
                               : read.emplace(folder, sim::load_catalogue()).first->second;
}

} // namespace shardplan::plan
