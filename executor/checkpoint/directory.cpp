#include "executor/checkpoint/directory.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "executor/checkpoint/index.hpp"
#include "simulator/io/file.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::exec {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_start = "save-";
constexpr std::string_view step_start = "-step-";
constexpr std::string_view saving_start = ".saving-";
constexpr std::string_view removing_start = ".removing-";
constexpr std::string_view latest_name = "latest";

/// The number of a checkpoint from its name; nothing if it is the name of something else.
std::optional<Index> number_of(std::string_view name) {
    if (name.substr(0, name_start.size()) != name_start) return std::nullopt;
    Index number = 0;
    Index step = 0;
    const char* end = name.data() + name.size();
    auto read = std::from_chars(name.data() + name_start.size(), end, number);
    const std::string_view rest(read.ptr, static_cast<std::size_t>(end - read.ptr));
    if (read.ec != std::errc() || rest.substr(0, step_start.size()) != step_start) {
        return std::nullopt;
    }
    read = std::from_chars(rest.data() + step_start.size(), end, step);
    return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

Error cannot(const std::string& path, const std::string& what, const std::error_code& why) {
    return sim::system_error(path, what, why.value());
}

/// Names in a folder, in no order.
Result<std::vector<std::string>> names_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code failed;
    for (auto at = fs::directory_iterator(folder, failed);
         !failed && at != fs::directory_iterator(); at.increment(failed)) {
        names.push_back(at->path().filename());
    }
    if (failed) return cannot(folder, "this cannot be listed", failed);
    return names;
}

/// Names of checkpoints, oldest first.
Result<std::vector<std::string>> saves_in(const std::string& folder) {
    auto names = names_in(folder);
    if (!names) return names;
    names->erase(std::remove_if(names->begin(), names->end(),
                                [](const std::string& name) { return !number_of(name); }),
                 names->end());
    std::sort(names->begin(), names->end(), [](const std::string& a, const std::string& b) {
        return number_of(a) < number_of(b);
    });
    return names;
}

/// Makes new names in a folder last over a failure of power.
Status sync_folder(const std::string& folder) {
    const sim::Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (open.number() < 0 || ::fsync(open.number()) != 0) {
        return sim::system_error(folder, "this folder cannot be written to disk", errno);
    }
    return sim::Done{};
}

Result<sim::Descriptor> lock(const std::string& directory) {
    const std::string path = directory + "/.lock";
    sim::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file.number() < 0) return sim::system_error(path, "this file cannot be written", errno);
    if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            return Error{ErrorCode::bad_input, directory, "another program saves here just now",
                         "give each run a folder of its own"};
        }
        return sim::system_error(path, "this file cannot be locked", errno);
    }
    return file;
}

/// Removes what programs that died were about to write or to remove.
Status remove_leftovers(const std::string& directory, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        const auto starts = [&](std::string_view with) {
            return std::string_view(name).substr(0, with.size()) == with;
        };
        if (!starts(saving_start) && !starts(removing_start) && !starts("latest.new-")) continue;
        std::error_code failed;
        fs::remove_all(directory + "/" + name, failed);
        if (failed) return cannot(directory + "/" + name, "this cannot be removed", failed);
    }
    return sim::Done{};
}

} // namespace

Result<Staging> stage(const std::string& directory, Index step) {
    std::error_code failed;
    fs::create_directories(directory, failed);
    if (failed) return cannot(directory, "this folder cannot be made", failed);
    auto locked = lock(directory);
    if (!locked) return std::move(locked).error();
    const auto names = names_in(directory);
    if (!names) return names.error();
    if (auto status = remove_leftovers(directory, *names); !status) {
        return std::move(status).error();
    }
    Index number = 0;
    for (const std::string& name : *names) {
        number = std::max(number, number_of(name).value_or(0));
    }
    Staging staging{std::move(*locked), directory, "", ""};
    staging.name = fmt::format("{}{:06}{}{}", name_start, number + 1, step_start, step);
    // With the process number: a rank of a run that died may still be writing into its own.
    staging.folder = fmt::format("{}/{}{}-{}", directory, saving_start, staging.name, ::getpid());
    fs::create_directory(staging.folder, failed);
    if (failed) return cannot(staging.folder, "this folder cannot be made", failed);
    return staging;
}

Status publish(const Staging& staging) {
    if (auto status = sync_folder(staging.folder); !status) return status;
    std::error_code failed;
    fs::rename(staging.folder, staging.final_path(), failed);
    if (failed) return cannot(staging.final_path(), "this folder cannot be named", failed);
    if (auto status = sync_folder(staging.directory); !status) return status;
    const std::string latest = fmt::format("{}/{}", staging.directory, latest_name);
    if (auto status = sim::write_file(latest, staging.name + "\n"); !status) return status;
    return sync_folder(staging.directory);
}

void discard(const Staging& staging) {
    std::error_code ignored; // the next save removes what is left
    fs::remove_all(staging.folder, ignored);
}

Status prune(const std::string& directory, Index keep) {
    const auto saves = saves_in(directory);
    if (!saves) return saves.error();
    const auto count = static_cast<Index>(saves->size());
    for (Index i = 0; i + keep < count; ++i) {
        const std::string& name = (*saves)[static_cast<std::size_t>(i)];
        // Under another name first, so that half of a checkpoint is never taken for one.
        const std::string doomed = fmt::format("{}/{}{}", directory, removing_start, name);
        std::error_code failed;
        fs::rename(directory + "/" + name, doomed, failed);
        if (!failed) fs::remove_all(doomed, failed);
        if (failed) {
            return cannot(directory + "/" + name,
                          "the checkpoint was saved, but this older one cannot be removed", failed);
        }
    }
    return sim::Done{};
}

Result<std::string> resolve(const std::string& directory) {
    std::error_code failed;
    if (fs::exists(directory + "/" + index_name, failed)) return directory;
    if (!fs::is_directory(directory, failed)) {
        return Error{ErrorCode::not_found, directory, "there is no such folder",
                     "name the folder that checkpoints were saved to"};
    }
    const auto saves = saves_in(directory);
    if (!saves) return saves.error();
    const std::string others = saves->empty()
                                   ? "name the folder that checkpoints were saved to"
                                   : "name a checkpoint of it: " + directory + "/" + saves->back();
    const std::string latest = fmt::format("{}/{}", directory, latest_name);
    if (!fs::exists(latest, failed)) {
        return Error{ErrorCode::not_found, latest, "no checkpoint was finished here", others};
    }
    auto name = sim::read_file(latest);
    if (!name) return name;
    if (!name->empty() && name->back() == '\n') name->pop_back();
    if (!number_of(*name)) {
        return Error{ErrorCode::bad_input, latest,
                     sim::in_quotes(*name) + " is no name of a checkpoint", others};
    }
    if (!fs::is_directory(directory + "/" + *name, failed)) {
        return Error{ErrorCode::not_found, latest, "it points to " + *name + ", which is not there",
                     others};
    }
    return directory + "/" + *name;
}

std::vector<std::string> list_checkpoints(const std::string& directory) {
    auto saves = saves_in(directory);
    if (!saves) return {};
    for (std::string& save : *saves) {
        save = directory + "/" + save;
    }
    return std::move(*saves);
}

} // namespace shardplan::exec
