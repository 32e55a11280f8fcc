#pragma once

#include "executor/kernels/buffer.hpp"
#include "executor/kernels/kernels.hpp"
#include "executor/kernels/memory_count.hpp"
#include "executor/kernels/off_device.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

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
