#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <system_error>

#include "executor/checkpoint/checkpoint.hpp"
#include "executor/checkpoint/directory.hpp"
#include "executor/checkpoint/index.hpp"
#include "executor/checkpoint/plan.hpp"
#include "executor/comm/agree.hpp"
#include "simulator/io/file.hpp"
#include "simulator/io/json.hpp"
#include "simulator/spec/fields.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::exec {

namespace {

/// The files of one rank, told to rank 0.
struct WrittenFiles {
    std::vector<StoredFile> files;
};

void describe(sim::FieldVisitor& v, WrittenFiles& x) {
    sim::field(v, {"files", "", "", true}, x.files);
}

Status check_request(const CheckpointMeta& meta, const SaveOptions& options) {
    if (options.keep_last < 1 || meta.step < 0) {
        return Error{ErrorCode::bad_input, "save_checkpoint",
                     "no step below 0 is saved, and none without keeping it",
                     "keep at least the last one"};
    }
    const auto refuse = [](const std::string& key) {
        return Error{ErrorCode::bad_input, "save_checkpoint",
                     sim::in_quotes(key) + " or its text is no UTF-8", "store UTF-8 texts"};
    };
    for (const auto& [key, number] : meta.numbers) {
        if (!is_utf8(key)) return refuse(key);
    }
    for (const auto& [key, text] : meta.texts) {
        if (!is_utf8(key) || !is_utf8(text)) return refuse(key);
    }
    return sim::Done{};
}

Result<SavePlan> make_plan(Communicator& world, std::span<const TensorPart> own) {
    const auto texts = gather_texts(world, write_layout(layout_of(own)));
    if (!texts) return texts.error();
    std::vector<RankLayout> ranks;
    for (const std::string& text : *texts) {
        auto layout = read_layout(text);
        if (!layout) return std::move(layout).error();
        ranks.push_back(std::move(*layout));
    }
    return plan_save(ranks);
}

/// Box `piece` lies in, among those of this rank.
const TensorBox* source_of(const std::vector<const TensorPart*>& parts, const Box& piece) {
    for (const TensorPart* part : parts) {
        for (const TensorBox& box : part->boxes) {
            if (contains(box.box, piece)) return &box;
        }
    }
    return nullptr;
}

Result<WrittenFiles> write_own(int rank, const std::string& folder, const SavePlan& plan,
                               std::span<const TensorPart> own) {
    std::map<std::string_view, std::vector<const TensorPart*>> parts;
    for (const TensorPart& part : own) {
        parts[part.name].push_back(&part);
    }
    std::vector<std::vector<ShardPiece>> files(static_cast<std::size_t>(plan.files));
    for (const PlannedPiece& piece : plan.pieces) {
        if (piece.rank != rank) continue;
        const PlannedTensor& tensor = plan.tensors[piece.tensor];
        files[static_cast<std::size_t>(piece.file)].push_back(
            {tensor.name, tensor.scalar, piece.box, source_of(parts[tensor.name], piece.box)});
    }
    WrittenFiles out;
    for (int f = 0; f < plan.files; ++f) {
        const auto& pieces = files[static_cast<std::size_t>(f)];
        if (pieces.empty()) continue;
        auto written = write_shard(folder, shard_name(rank, f, plan.files), pieces);
        if (!written) return std::move(written).error();
        out.files.push_back(std::move(*written));
    }
    return out;
}

/// What rank 0 knows once all have written.
Result<CheckpointIndex> make_index(const std::vector<std::string>& written, const SavePlan& plan,
                                   const CheckpointMeta& meta) {
    CheckpointIndex index;
    index.meta = meta;
    index.ranks = static_cast<Index>(written.size());
    std::map<std::string, Index> numbers;
    for (const std::string& text : written) {
        auto files = sim::read_described<WrittenFiles>(text, "files of a rank");
        if (!files) return std::move(files).error();
        for (StoredFile& file : files->files) {
            numbers.emplace(file.file, static_cast<Index>(index.files.size()));
            index.files.push_back(std::move(file));
        }
    }
    for (const PlannedTensor& tensor : plan.tensors) {
        index.tensors.push_back(
            {tensor.name, std::string(dtype_of(tensor.scalar)), tensor.shape, {}});
    }
    for (const PlannedPiece& piece : plan.pieces) {
        const auto file = numbers.find(shard_name(piece.rank, piece.file, plan.files));
        index.tensors[piece.tensor].files.push_back(file->second);
    }
    return index;
}

/// Rank 0 sees what the others wrote.
Status check_seen(const std::string& folder, const CheckpointIndex& index) {
    for (const StoredFile& file : index.files) {
        std::error_code failed;
        const auto bytes = std::filesystem::file_size(folder + "/" + file.file, failed);
        if (failed || static_cast<Index>(bytes) != file.bytes) {
            return Error{ErrorCode::bad_input, folder + "/" + file.file,
                         "rank 0 does not see this file as another rank wrote it",
                         "save to a folder on a disk that all ranks share"};
        }
    }
    return sim::Done{};
}

Status finish(const Staging& staging, const std::vector<std::string>& written, const SavePlan& plan,
              const CheckpointMeta& meta) {
    const auto index = make_index(written, plan, meta);
    if (!index) return index.error();
    if (auto status = check_seen(staging.folder, *index); !status) return status;
    const std::string path = staging.folder + "/" + index_name;
    if (auto status = sim::write_file(path, write_index(*index)); !status) return status;
    return publish(staging);
}

} // namespace

Result<std::string> save_checkpoint(Communicator& world, const std::string& directory,
                                    std::span<const TensorPart> own, const CheckpointMeta& meta,
                                    const SaveOptions& options) {
    Status status = check_request(meta, options);
    if (status) status = check_parts(own);
    if (status = agree(world, status); !status) return std::move(status).error();
    // From the same layouts every rank makes the same plan, or finds the same fault.
    const auto plan = make_plan(world, own);
    if (!plan) return plan.error();

    std::optional<Staging> staging; // of rank 0
    if (world.rank() == 0) {
        auto staged = stage(directory, meta.step);
        if (staged) {
            staging.emplace(std::move(*staged));
        } else {
            status = std::move(staged).error();
        }
    }
    const auto give_up = [&](Error error) {
        if (staging) discard(*staging);
        return error;
    };
    if (status = agree(world, status); !status) return give_up(std::move(status).error());
    const auto folder = text_of_root(world, staging ? staging->folder : "");
    if (!folder) return give_up(folder.error());
    const auto path = text_of_root(world, staging ? staging->final_path() : "");
    if (!path) return give_up(path.error());

    auto files = write_own(world.rank(), *folder, *plan, own);
    status = files ? Status(sim::Done{}) : Status(files.error());
    if (status = agree(world, status); !status) return give_up(std::move(status).error());
    const auto written = gather_texts(world, sim::write_described(*files, sim::Indent::compact));
    if (!written) return give_up(written.error());
    if (staging) {
        status = finish(*staging, *written, *plan, meta);
        if (!status) discard(*staging);
        if (status) status = prune(directory, options.keep_last);
    }
    if (status = agree(world, status); !status) return std::move(status).error();
    return path;
}

} // namespace shardplan::exec
