#include "executor/checkpoint/index.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "simulator/io/file.hpp"
#include "simulator/io/hash.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/fields.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::exec {

using sim::field;
using sim::FieldVisitor;
using sim::in_quotes;

namespace {

constexpr std::string_view format_name = "shardplan-checkpoint";
constexpr Index format_version = 1;
constexpr const char* damaged_hint = "load an older checkpoint, or copy this one again";

/// An index as it stands in its file.
struct IndexFile {
    std::string format{format_name};
    Index version = format_version;
    std::string hash;
    CheckpointIndex index;
};

void describe(FieldVisitor& v, IndexFile& x) {
    field(v, {"format", "format", "Always shardplan-checkpoint.", true}, x.format);
    field(v, {"format_version", "format version", "Version of this form.", true}, x.version);
    field(v, {"hash", "hash", "Tells whether the rest was changed after it was written.", true},
          x.hash);
    field(v, {"step", "step", "Optimizer steps done.", true, 0}, x.index.meta.step);
    field(v, {"numbers", "numbers", "What the program stored beside the tensors.", true},
          x.index.meta.numbers);
    field(v, {"texts", "texts", "Likewise.", true}, x.index.meta.texts);
    field(v, {"ranks", "ranks", "How many wrote it.", true, 1}, x.index.ranks);
    field(v, {"files", "files", "The files that hold the tensors.", true}, x.index.files);
    field(v, {"tensors", "tensors", "All tensors, by name.", true}, x.index.tensors);
}

std::string hash_of(IndexFile file) {
    file.hash.clear();
    return sim::content_hash_of(file);
}

Status check_places(const CheckpointIndex& index, const std::string& source) {
    for (const StoredFile& file : index.files) {
        if (file.file.empty() || file.file.find('/') != std::string::npos) {
            return Error{ErrorCode::bad_input, source + ": /files",
                         in_quotes(file.file) + " is no name of a file beside the index",
                         damaged_hint};
        }
    }
    const auto files = static_cast<Index>(index.files.size());
    for (const StoredTensor& tensor : index.tensors) {
        for (const Index file : tensor.files) {
            if (file < 0 || file >= files) {
                return Error{ErrorCode::bad_input, source + ": /tensors",
                             in_quotes(tensor.name) + " is said to lie in file " +
                                 std::to_string(file) + " of " + std::to_string(files),
                             damaged_hint};
            }
        }
    }
    return sim::Done{};
}

} // namespace

void describe(FieldVisitor& v, StoredFile& x) {
    field(v, {"file", "file", "Name in this folder.", true}, x.file);
    field(v, {"bytes", "bytes", "Its size.", true, 0}, x.bytes);
    field(v, {"header_crc32c", "header sum", "CRC-32C of all before the data.", true},
          x.header_sum);
}

void describe(FieldVisitor& v, StoredTensor& x) {
    field(v, {"name", "name", "As in the files.", true}, x.name);
    field(v, {"dtype", "type", "Of an element, as in the files.", true}, x.dtype);
    field(v, {"shape", "shape", "Of the whole tensor.", true}, x.shape);
    field(v, {"files", "files", "Those that hold a box of it, from 0.", true}, x.files);
}

std::string write_index(const CheckpointIndex& index) {
    IndexFile file{std::string(format_name), format_version, "", index};
    file.hash = hash_of(file);
    return sim::write_described(file);
}

Result<CheckpointIndex> parse_index(std::string_view text, const std::string& source) {
    const auto json = sim::JsonValue::parse(text, source);
    if (!json) return json.error();
    // Before the rest, which another version may have changed.
    const auto format = json->get("format").and_then([](auto v) { return v.as_string(); });
    if (!format || *format != format_name) {
        return Error{ErrorCode::bad_input, source, "this is not the index of a checkpoint",
                     "name the folder that `save` wrote"};
    }
    const auto version = json->get("format_version").and_then([](auto v) { return v.as_int(); });
    if (!version) return version.error();
    if (*version != format_version) {
        return Error{ErrorCode::unsupported, source + ": /format_version",
                     "the checkpoint has format version " + std::to_string(*version) +
                         ", this program reads version " + std::to_string(format_version),
                     "load it with the version of shardplan that wrote it"};
    }
    auto file = sim::read_described<IndexFile>(*json);
    if (!file) return std::move(file).error();
    if (const std::string hash = hash_of(*file); hash != file->hash) {
        return Error{ErrorCode::bad_input, source + ": /hash",
                     "the index was changed after it was written: its hash is " + hash + ", " +
                         in_quotes(file->hash) + " was written",
                     damaged_hint};
    }
    if (auto status = check_places(file->index, source); !status) {
        return std::move(status).error();
    }
    return std::move(file->index);
}

Result<CheckpointIndex> read_index(const std::string& folder) {
    const std::string path = folder + "/" + index_name;
    const auto text = sim::read_file(path);
    if (!text) return text.error();
    return parse_index(*text, path);
}

Result<CheckpointIndex> index_of_files(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code failed;
    for (auto at = std::filesystem::directory_iterator(folder, failed);
         !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
        if (at->path().extension() == ".safetensors") names.push_back(at->path().filename());
    }
    if (failed) return sim::system_error(folder, "this cannot be listed", failed.value());
    if (names.empty()) {
        return Error{ErrorCode::not_found, folder, "there is no *.safetensors here",
                     "name a folder that holds some"};
    }
    std::sort(names.begin(), names.end());
    CheckpointIndex index;
    std::map<std::string, StoredTensor> tensors;
    for (const std::string& name : names) {
        const std::string path = folder + "/" + name;
        const auto reader = ShardReader::open(path);
        if (!reader) return reader.error();
        const auto number = static_cast<Index>(index.files.size());
        index.files.push_back({name, 0, ""});
        for (const StoredBox& box : reader->header().boxes) {
            const std::vector<Index> nothing(box.box.first.size(), 0);
            StoredTensor& tensor =
                tensors.try_emplace(box.name, StoredTensor{box.name, box.dtype, nothing, {}})
                    .first->second;
            if (tensor.dtype != box.dtype || tensor.shape.size() != box.box.first.size()) {
                return Error{ErrorCode::bad_input, path,
                             in_quotes(box.name) +
                                 " has another type or other dimensions than "
                                 "in another file",
                             "leave only files of one checkpoint in the folder"};
            }
            for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
                tensor.shape[d] = std::max(tensor.shape[d], box.box.first[d] + box.box.extent[d]);
            }
            tensor.files.push_back(number);
        }
    }
    for (auto& [name, tensor] : tensors) {
        index.tensors.push_back(std::move(tensor));
    }
    return index;
}

} // namespace shardplan::exec
