#include "executor/kernels/arena.hpp"

#include <algorithm>

namespace shardplan::exec {

Buffer<std::byte> Arena::take(Index bytes, sim::TensorKind kind) {
    in_use_ += bytes;
    high_water_ = std::max(high_water_, in_use_);
    if (count_ != nullptr) count_->add(kind, bytes);
    std::vector<Buffer<std::byte>>& kept = free_[bytes];
    if (kept.empty()) return Buffer<std::byte>(bytes);
    Buffer<std::byte> buffer = std::move(kept.back());
    kept.pop_back();
    return buffer;
}

void Arena::give(Buffer<std::byte> buffer, sim::TensorKind kind) {
    in_use_ -= buffer.size();
    if (count_ != nullptr) count_->remove(kind, buffer.size());
    free_[buffer.size()].push_back(std::move(buffer));
}

void Arena::recount(Index bytes, sim::TensorKind from, sim::TensorKind to) {
    if (count_ == nullptr) return;
    count_->remove(from, bytes);
    count_->add(to, bytes);
}

} // namespace shardplan::exec
