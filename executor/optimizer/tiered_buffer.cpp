#include "executor/optimizer/tiered_buffer.hpp"

#include <utility>

#include "executor/kernels/bf16.hpp"

namespace shardplan::exec {

template <class T>
sim::Result<TieredBuffer<T>> TieredBuffer<T>::make(Index count, const Offload& offload,
                                                   sim::TensorKind kind, MemoryCount& memory) {
    constexpr auto size = static_cast<Index>(sizeof(T));
    const Index off = offload.of(count);
    TieredBuffer made;
    made.count_ = count;
    made.here_.reset(count - off);
    memory.add(kind, (count - off) * size);
    if (off == 0) return made;
    if (offload.tier == sim::Tier::nvme) {
        auto file = MappedFile::make(offload.folder, off * size);
        if (!file) return std::move(file).error();
        made.file_ = std::move(*file);
        made.elsewhere_ = static_cast<T*>(made.file_.data());
    } else {
        made.host_.reset(off);
        made.elsewhere_ = made.host_.data();
    }
    memory.add_off_device(offload.tier, off * size);
    return made;
}

template class TieredBuffer<float>;
template class TieredBuffer<double>;
template class TieredBuffer<Bf16>;

} // namespace shardplan::exec
