#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/checkpoint/directory.hpp"
#include "executor/checkpoint/index.hpp"
#include "executor/checkpoint/plan.hpp"
#include "executor/comm/agree.hpp"
#include "simulator/units/in_quotes.hpp"
#include "simulator/units/nearest.hpp"

namespace shardplan::exec {

namespace {

using sim::in_quotes;

/// A wanted box, and what of it was not read yet.
struct Wanted {
    const TensorPart* part = nullptr;
    const TensorBox* box = nullptr;
    std::vector<Box> left;
};

std::string shape_text(const std::string& dtype, const std::vector<Index>& shape) {
    return fmt::format("{} of {}", to_text(whole_of(shape)), dtype);
}

Error missing(const TensorPart& part, const CheckpointIndex& index, const std::string& folder) {
    std::vector<std::string> names;
    for (const StoredTensor& tensor : index.tensors) {
        names.push_back(tensor.name);
    }
    return {ErrorCode::bad_input, folder, "it holds no tensor " + in_quotes(part.name),
            sim::nearest_hint(part.name, names)};
}

/// What every file must give: boxes by the number of the file that may hold some of each.
Result<std::map<Index, std::vector<std::size_t>>> assign(const CheckpointIndex& index,
                                                         const std::string& folder,
                                                         const std::vector<Wanted>& wanted) {
    std::map<std::string_view, const StoredTensor*> stored;
    for (const StoredTensor& tensor : index.tensors) {
        stored.emplace(tensor.name, &tensor);
    }
    std::map<Index, std::vector<std::size_t>> out;
    for (std::size_t w = 0; w < wanted.size(); ++w) {
        const TensorPart& part = *wanted[w].part;
        const auto at = stored.find(part.name);
        if (at == stored.end()) return missing(part, index, folder);
        const StoredTensor& tensor = *at->second;
        const std::string dtype(dtype_of(part.scalar));
        if (tensor.shape != part.shape || tensor.dtype != dtype) {
            return Error{
                ErrorCode::bad_input, folder,
                fmt::format("the tensor {} is {}, and {} is wanted", in_quotes(part.name),
                            shape_text(tensor.dtype, tensor.shape), shape_text(dtype, part.shape)),
                "run the model and the precision that were saved"};
        }
        for (const Index file : tensor.files) {
            auto& of_file = out[file];
            if (of_file.empty() || of_file.back() != w) of_file.push_back(w);
        }
    }
    return out;
}

/// Takes from an open file what is left of a box.
Status take(ShardReader& file, const StoredBox& stored, Wanted& wanted) {
    std::vector<Box> left;
    for (const Box& box : wanted.left) {
        const auto common = intersect(box, stored.box);
        if (common) {
            if (auto status = file.read(stored, *common, *wanted.box); !status) return status;
        }
        const auto rest = subtract(box, stored.box);
        left.insert(left.end(), rest.begin(), rest.end());
    }
    wanted.left = std::move(left);
    return sim::Done{};
}

Status take_all(ShardReader& file, const std::string& path, std::vector<Wanted>& wanted,
                const std::vector<std::size_t>& of_file) {
    // In the order of the file, which then is read once.
    std::vector<std::pair<const StoredBox*, std::size_t>> order;
    for (const std::size_t w : of_file) {
        const TensorPart& part = *wanted[w].part;
        const StoredBox* stored = file.find(part.name);
        if (stored == nullptr || stored->dtype != dtype_of(part.scalar) ||
            stored->box.first.size() != part.shape.size()) {
            return Error{ErrorCode::bad_input, path,
                         "it does not hold " + in_quotes(part.name) + " as the index says",
                         "load an older checkpoint, or copy this one again"};
        }
        if (volume(stored->box) > 0) order.emplace_back(stored, w);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first->begin < b.first->begin; });
    for (const auto& [stored, w] : order) {
        if (auto status = take(file, *stored, wanted[w]); !status) return status;
    }
    return sim::Done{};
}

/// Fills the boxes from the files of an index; `described`: it says what their sizes and sums are.
Status read_boxes(const CheckpointIndex& index, bool described, const std::string& folder,
                  std::span<const TensorPart> parts) {
    std::vector<Wanted> wanted;
    for (const TensorPart& part : parts) {
        for (const TensorBox& box : part.boxes) {
            if (volume(box.box) > 0) wanted.push_back({&part, &box, {box.box}});
        }
    }
    const auto files = assign(index, folder, wanted);
    if (!files) return files.error();
    for (const auto& [number, of_file] : *files) {
        const StoredFile& file = index.files[static_cast<std::size_t>(number)];
        const std::string path = folder + "/" + file.file;
        auto reader = described ? ShardReader::open(folder, file) : ShardReader::open(path);
        if (!reader) return std::move(reader).error();
        if (auto status = take_all(*reader, path, wanted, of_file); !status) return status;
    }
    for (const Wanted& box : wanted) {
        if (!box.left.empty()) {
            return Error{ErrorCode::bad_input, folder,
                         "no file holds the elements " + to_text(box.left.front()) + " of " +
                             in_quotes(box.part->name),
                         "bring all files of the checkpoint into the folder"};
        }
    }
    return sim::Done{};
}

/// Reads what this rank wants; `folder` is a checkpoint.
Result<CheckpointMeta> load_own(const std::string& folder, std::span<const TensorPart> wanted) {
    if (auto status = check_parts(wanted); !status) return std::move(status).error();
    auto index = read_index(folder);
    if (!index) return std::move(index).error();
    if (auto status = read_boxes(*index, true, folder, wanted); !status) {
        return std::move(status).error();
    }
    return std::move(index->meta);
}

} // namespace

Result<CheckpointMeta> load_checkpoint(Communicator& world, const std::string& directory,
                                       std::span<const TensorPart> wanted) {
    // Rank 0 alone says which is the latest, so that all load the same one.
    Status status = sim::Done{};
    std::string folder;
    if (world.rank() == 0) {
        auto found = resolve(directory);
        status = found ? Status(sim::Done{}) : Status(found.error());
        if (found) folder = std::move(*found);
    }
    if (status = agree(world, status); !status) return std::move(status).error();
    const auto same = text_of_root(world, folder);
    if (!same) return same.error();
    auto meta = load_own(*same, wanted);
    status = meta ? Status(sim::Done{}) : Status(meta.error());
    if (status = agree(world, status); !status) return std::move(status).error();
    return meta;
}

Result<CheckpointMeta> read_checkpoint_meta(const std::string& directory) {
    const auto folder = resolve(directory);
    if (!folder) return folder.error();
    auto index = read_index(*folder);
    if (!index) return std::move(index).error();
    return std::move(index->meta);
}

Status load_safetensors(const std::string& directory, std::span<const TensorPart> wanted) {
    if (auto status = check_parts(wanted); !status) return status;
    const auto index = index_of_files(directory);
    if (!index) return index.error();
    return read_boxes(*index, false, directory, wanted);
}

} // namespace shardplan::exec
