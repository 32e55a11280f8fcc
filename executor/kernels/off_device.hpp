#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "executor/kernels/buffer.hpp"
#include "executor/kernels/kernels.hpp"
#include "executor/kernels/memory_count.hpp"
#include "simulator/spec/layout.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

/// Bytes of a file without a name, gone with the process, as if they were memory. They start as
/// zeros.
class MappedFile {
public:
    MappedFile() = default;
    ~MappedFile() { release(); }
    MappedFile(MappedFile&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    MappedFile& operator=(MappedFile&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }

    /// `folder` empty: the current one. Room on the disk is taken at once. Errors: the system's.
    static sim::Result<MappedFile> make(const std::string& folder, std::int64_t bytes);

    [[nodiscard]] void* data() const { return data_; }
    /// Reading from the disk begins.
    void prefetch() const;
    /// Writing to the disk begins, and memory is free for others.
    void give_way() const;

private:
    void release();

    void* data_ = nullptr;
    std::int64_t bytes_ = 0;
};

/// Where a layout offloads to.
sim::Tier tier_of(sim::OffloadTier tier);

/// Where the offloaded part of something is kept.
struct Offload {
    sim::Tier tier = sim::Tier::device;
    Index thousandths = 0;
    std::string folder; ///< of files

    /// Elements of `count` that are kept there: the last ones.
    [[nodiscard]] Index of(Index count) const {
        return tier == sim::Tier::device ? 0 : count * thousandths / sim::offload_scale;
    }
};

class OffDevice;

/// Bytes off the device, given back at the end of the scope.
class Away {
public:
    Away() = default;
    ~Away() { release(); }
    Away(Away&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)),
          host_(std::move(other.host_)),
          file_(std::move(other.file_)) {}
    Away& operator=(Away&& other) noexcept {
        if (this == &other) return *this;
        release();
        store_ = std::exchange(other.store_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
        host_ = std::move(other.host_);
        file_ = std::move(other.file_);
        return *this;
    }

    void release();
    [[nodiscard]] Index bytes() const { return bytes_; }
    [[nodiscard]] std::byte* data() {
        return file_.data() != nullptr ? static_cast<std::byte*>(file_.data()) : host_.data();
    }
    /// See MappedFile.
    void prefetch() const { file_.prefetch(); }
    void give_way() const { file_.give_way(); }

private:
    friend class OffDevice;
    OffDevice* store_ = nullptr;
    Index bytes_ = 0;
    Buffer<std::byte> host_;
    MappedFile file_;
};

/// Memory off the device for what comes and goes within a step. What is given back is kept for the
/// next request of the same size. One thread at a time.
class OffDevice {
public:
    /// From now on a part of what asks is moved. `count` outlives this.
    void set(Offload offload, MemoryCount& count) {
        offload_ = std::move(offload);
        count_ = &count;
    }
    [[nodiscard]] bool moves() const { return count_ != nullptr && offload_.thousandths > 0; }
    [[nodiscard]] Index of(Index count) const { return moves() ? offload_.of(count) : 0; }
    /// Errors: of files.
    sim::Result<Away> take(Index bytes);

private:
    friend class Away;
    void give(Away& away);

    Offload offload_;
    MemoryCount* count_ = nullptr;
    std::map<Index, std::vector<Buffer<std::byte>>> host_;
    std::map<Index, std::vector<MappedFile>> files_;
};

} // namespace shardplan::exec
