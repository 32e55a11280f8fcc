#include "executor/checkpoint/shard_file.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/checkpoint/crc32c.hpp"

namespace shardplan::exec {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

/// Read and checked whole, so not much larger than what a small tensor needs; its sum costs eight
/// digits of the header.
constexpr Index block_bytes = Index{1} << 20;

constexpr const char* other_hint = "load an older checkpoint, or copy this one again";

/// Sends bytes into a file block by block, and sums each.
class BlockWriter {
public:
    explicit BlockWriter(const sim::Descriptor& file) : file_(&file) {
        block_.reserve(static_cast<std::size_t>(block_bytes));
    }
    bool add(const std::byte* data, std::size_t bytes) {
        while (bytes > 0) {
            const std::size_t room = static_cast<std::size_t>(block_bytes) - block_.size();
            const std::size_t now = std::min(room, bytes);
            block_.insert(block_.end(), data, data + now);
            data += now;
            bytes -= now;
            if (now == room && !flush()) return false;
        }
        return true;
    }
    bool flush() {
        if (block_.empty()) return true;
        sums_.push_back(crc32c(block_));
        const bool written = sim::write_all(*file_, block_.data(), block_.size());
        block_.clear();
        return written;
    }
    [[nodiscard]] std::vector<std::uint32_t> sums() && { return std::move(sums_); }

private:
    const sim::Descriptor* file_;
    std::vector<std::byte> block_;
    std::vector<std::uint32_t> sums_;
};

bool write_piece(BlockWriter& out, const ShardPiece& piece) {
    const auto width = static_cast<Index>(bytes_of(piece.scalar));
    const auto add = [&](Index from, Index /*to*/, Index count) -> Status {
        if (!out.add(piece.source->data + from * width, static_cast<std::size_t>(count * width))) {
            return Error{}; // errno says why
        }
        return sim::Done{};
    };
    return for_each_run(piece.box, places_of(*piece.source), dense_places(piece.box), add)
        .has_value();
}

/// Fills the buffer from a place in the file; false leaves errno, 0 where the file ends early.
bool read_at(const sim::Descriptor& file, Index at, void* to, std::size_t bytes) {
    auto* out = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t got = ::pread(file.number(), out, bytes, static_cast<off_t>(at));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            if (got == 0) errno = 0;
            return false;
        }
        out += got;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

Error read_error(const std::string& path) {
    if (errno != 0) return sim::system_error(path, "this file cannot be read", errno);
    return {ErrorCode::bad_input, path, "the file ends early: it was cut while it was read",
            other_hint};
}

} // namespace

Result<StoredFile> write_shard(const std::string& folder, const std::string& file,
                               const std::vector<ShardPiece>& pieces) {
    SafetensorsHeader header;
    std::map<std::string_view, const ShardPiece*> by_name;
    for (const ShardPiece& piece : pieces) {
        by_name.emplace(piece.name, &piece);
        header.boxes.push_back({piece.name, std::string(dtype_of(piece.scalar)), piece.box});
    }
    place(header.boxes);
    const Index data_bytes = header.boxes.empty() ? 0 : header.boxes.back().end;
    const auto blocks = static_cast<std::size_t>((data_bytes + block_bytes - 1) / block_bytes);
    header.sums = BlockSums{block_bytes, std::vector<std::uint32_t>(blocks, 0)};
    // Its length is known before its sums are.
    const auto data_begin = static_cast<Index>(write_header(header).size());

    const std::string path = folder + "/" + file;
    const auto failed = [&] {
        return sim::system_error(path, "this file cannot be written", errno);
    };
    sim::Descriptor out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (out.number() < 0 || ::lseek(out.number(), data_begin, SEEK_SET) < 0) return failed();
    BlockWriter writer(out);
    for (const StoredBox& box : header.boxes) {
        if (!write_piece(writer, *by_name.at(box.name))) return failed();
    }
    if (!writer.flush()) return failed();
    header.sums->sums = std::move(writer).sums();
    const std::string text = write_header(header);
    if (::lseek(out.number(), 0, SEEK_SET) < 0 || !sim::write_all(out, text.data(), text.size()) ||
        ::fsync(out.number()) != 0 || !out.close()) {
        return failed();
    }
    return StoredFile{file, data_begin + data_bytes,
                      sum_text(crc32c(std::as_bytes(std::span(text))))};
}

Result<ShardReader> ShardReader::open(const std::string& path, const StoredFile* expected) {
    ShardReader reader(path, sim::Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    struct stat about {};
    if (reader.file_.number() < 0 || ::fstat(reader.file_.number(), &about) != 0) {
        return sim::system_error(path, "this file cannot be opened", errno);
    }
    if (!S_ISREG(about.st_mode)) {
        return Error{ErrorCode::bad_input, path, "this is no file", "name a folder of files"};
    }
    const auto bytes = static_cast<Index>(about.st_size);
    if (expected != nullptr && bytes != expected->bytes) {
        return Error{ErrorCode::bad_input, path,
                     "the file has " + std::to_string(bytes) + " bytes, " +
                         std::to_string(expected->bytes) + " were written",
                     other_hint};
    }
    std::string text(static_cast<std::size_t>(std::min(length_bytes, bytes)), '\0');
    if (!read_at(reader.file_, 0, text.data(), text.size())) return read_error(path);
    const auto length = header_length(text, bytes, path);
    if (!length) return length.error();
    text.resize(static_cast<std::size_t>(length_bytes + *length));
    if (!read_at(reader.file_, length_bytes, text.data() + length_bytes,
                 static_cast<std::size_t>(*length))) {
        return read_error(path);
    }
    const auto sum = sum_text(crc32c(std::as_bytes(std::span(text))));
    if (expected != nullptr && sum != expected->header_sum) {
        return Error{
            ErrorCode::bad_input, path,
            "the checksum of the header is " + sum + ", " + expected->header_sum + " was written",
            other_hint};
    }
    reader.data_begin_ = length_bytes + *length;
    reader.data_bytes_ = bytes - reader.data_begin_;
    auto header =
        parse_header(std::string_view(text).substr(length_bytes), reader.data_bytes_, path);
    if (!header) return std::move(header).error();
    reader.header_ = std::move(*header);
    const auto& boxes = reader.header_.boxes;
    reader.by_name_.resize(boxes.size());
    std::iota(reader.by_name_.begin(), reader.by_name_.end(), std::size_t{0});
    std::sort(reader.by_name_.begin(), reader.by_name_.end(),
              [&](std::size_t a, std::size_t b) { return boxes[a].name < boxes[b].name; });
    return reader;
}

Result<ShardReader> ShardReader::open(const std::string& path) { return open(path, nullptr); }

Result<ShardReader> ShardReader::open(const std::string& folder, const StoredFile& expected) {
    return open(folder + "/" + expected.file, &expected);
}

const StoredBox* ShardReader::find(std::string_view name) const {
    const auto at = std::lower_bound(
        by_name_.begin(), by_name_.end(), name,
        [&](std::size_t i, std::string_view key) { return header_.boxes[i].name < key; });
    const bool found = at != by_name_.end() && header_.boxes[*at].name == name;
    return found ? &header_.boxes[*at] : nullptr;
}

Status ShardReader::read(const StoredBox& stored, const Box& part, const TensorBox& to) {
    const Index width = (stored.end - stored.begin) / volume(stored.box);
    return for_each_run(
        part, dense_places(stored.box), places_of(to), [&](Index from, Index at, Index count) {
            return read_bytes(stored.begin + from * width, count * width, to.data + at * width);
        });
}

Status ShardReader::read_bytes(Index at, Index bytes, std::byte* to) {
    if (!header_.sums) {
        if (!read_at(file_, data_begin_ + at, to, static_cast<std::size_t>(bytes))) {
            return read_error(path_);
        }
        return sim::Done{};
    }
    while (bytes > 0) {
        const Index number = at / header_.sums->block_bytes;
        if (number != block_number_) {
            if (auto status = load_block(number); !status) return status;
        }
        const Index inside = at - number * header_.sums->block_bytes;
        const Index now = std::min(bytes, static_cast<Index>(block_.size()) - inside);
        std::memcpy(to, block_.data() + inside, static_cast<std::size_t>(now));
        at += now;
        to += now;
        bytes -= now;
    }
    return sim::Done{};
}

Status ShardReader::load_block(Index number) {
    const BlockSums& sums = *header_.sums;
    const Index begin = number * sums.block_bytes;
    block_number_ = -1;
    block_.resize(static_cast<std::size_t>(std::min(sums.block_bytes, data_bytes_ - begin)));
    if (!read_at(file_, data_begin_ + begin, block_.data(), block_.size())) {
        return read_error(path_);
    }
    const std::uint32_t sum = crc32c(block_);
    const std::uint32_t expected = sums.sums[static_cast<std::size_t>(number)];
    if (sum != expected) {
        return Error{
            ErrorCode::bad_input, path_,
            "the checksum of bytes " + std::to_string(data_begin_ + begin) + " to " +
                std::to_string(data_begin_ + begin + static_cast<Index>(block_.size()) - 1) +
                " is " + sum_text(sum) + ", " + sum_text(expected) + " was written",
            other_hint};
    }
    block_number_ = number;
    return sim::Done{};
}

} // namespace shardplan::exec
