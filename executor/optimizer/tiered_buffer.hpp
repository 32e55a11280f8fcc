#pragma once

#include <string>
#include <utility>

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

/// Elements of which the last ones are kept off the device. Places stay as they are.
template <class T>
class TieredBuffer {
public:
    TieredBuffer() = default;
    /// `count` zeros. Errors: of files.
    static sim::Result<TieredBuffer> make(Index count, const Offload& offload, sim::TensorKind kind,
                                          MemoryCount& memory);

    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] Index size() const { return count_; }
    /// The first element off the device.
    [[nodiscard]] Index border() const { return here_.size(); }
    /// Elements follow one another up to the border, and from there to the end.
    [[nodiscard]] T* at(Index i) {
        return i < here_.size() ? here_.data() + i : elsewhere_ + (i - here_.size());
    }
    void prefetch() const { file_.prefetch(); }
    void give_way() const { file_.give_way(); }

private:
    Index count_ = 0;
    Buffer<T> here_;
    Buffer<T> host_;
    MappedFile file_;
    T* elsewhere_ = nullptr;
};

} // namespace shardplan::exec
