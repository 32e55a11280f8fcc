#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "executor/optimizer/data_parallel.hpp"
#include "simulator/units/hash_mix.hpp"

namespace shardplan::exec {

namespace {

/// What one rank found, as it is told to all others: as much of it as fits.
using Finding = std::array<char, 256>;

template <class T>
std::uint64_t hash_of(std::uint64_t seed, const T* values, Index count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
    std::uint64_t hash = sim::hash_mix(seed, bytes);
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
        std::uint64_t word = 0;
        std::memcpy(&word, reinterpret_cast<const char*>(values) + at,
                    std::min(sizeof word, bytes - at));
        hash = sim::hash_mix(hash, word);
    }
    return hash;
}

/// "ranks 2 and 3"
std::string ranks_text(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
        text += std::to_string(ranks[i]);
    }
    return text;
}

/// The first of `count` hashes that ranks of a group have differently; empty if there is none.
std::string difference(const Communicator& group, const std::vector<std::int64_t>& all,
                       std::size_t count, const std::vector<std::string>& what) {
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<int> other;
        for (std::size_t rank = 1; rank < all.size() / count; ++rank) {
            if (all[rank * count + i] != all[i]) other.push_back(group.world_ranks()[rank]);
        }
        if (other.empty()) continue;
        return ranks_text(other) + (other.size() == 1 ? " holds other " : " hold other ") +
               what[i] + " than rank " + std::to_string(group.world_ranks().front());
    }
    return "";
}

} // namespace

template <class Scalar>
std::vector<ReplicaHash> DataParallel<Scalar>::hashes() {
    const std::vector<Parameter>& table = parameters_->table().parameters;
    std::vector<ReplicaHash> out(table.size());
    for (std::size_t i = 0; i < table.size(); ++i) {
        out[i].parameter = static_cast<Index>(i);
    }
    for (Index s = 0; s < shards_->segments(); ++s) {
        for (const Index i : shards_->segment(s).parameters) {
            if (shards_->gathers(s)) continue;
            const Index count = parameters_->table()[i].count();
            const Index offset = parameters_->offset_of(i);
            out[static_cast<std::size_t>(i)].values =
                parameters_->storage() == Storage::bf16
                    ? hash_of(0, parameters_->packed(s) + offset, count)
                    : hash_of(0, parameters_->values(s) + offset, count);
        }
        shards_->each_run(s, [&](const typename Shards<Scalar>::Run& run) {
            const Index count = run.elements.end - run.elements.begin;
            std::uint64_t& hash = out[static_cast<std::size_t>(run.elements.parameter)].states;
            hash = hash_of(hash, run.values, count);
            hash = hash_of(hash, run.first, count);
            if (run.second != nullptr) hash = hash_of(hash, run.second, count);
        });
    }
    return out;
}

template <class Scalar>
Result<std::string> DataParallel<Scalar>::drift() {
    struct Comparison {
        Communicator* group;
        bool states;
        std::function<bool(const Parameter&)> applies;
    };
    const auto dense = [](const Parameter& p) { return p.holders == Holders::dense; };
    const auto expert = [](const Parameter& p) { return p.holders == Holders::expert; };
    const std::vector<Comparison> comparisons = {
        {groups_.dense.parts, false, dense},
        {groups_.dense.copies, true, dense},
        {groups_.expert.parts, false, expert},
        {groups_.expert.copies, true, expert},
        {groups_.tp, true, [&](const Parameter& p) { return dense(p) && !p.split; }},
        {groups_.table, true, [](const Parameter& p) { return p.on_two_stages; }},
        {groups_.mirror, true, [](const Parameter&) { return true; }},
    };
    std::vector<ReplicaHash> hashes = this->hashes();
    const auto at = [&](const ReplicaHash& h) -> const Parameter& {
        return parameters_->table()[h.parameter];
    };
    // mirrored stages have other numbers
    std::sort(hashes.begin(), hashes.end(),
              [&](const ReplicaHash& a, const ReplicaHash& b) { return at(a).name < at(b).name; });
    std::string found;
    for (const Comparison& c : comparisons) {
        if (c.group == nullptr) continue;
        std::vector<std::int64_t> own;
        std::vector<std::string> what;
        for (const ReplicaHash& hash : hashes) {
            if (!c.applies(at(hash))) continue;
            own.push_back(static_cast<std::int64_t>(hash.values));
            what.push_back("values of " + at(hash).name);
            if (!c.states) continue;
            own.push_back(static_cast<std::int64_t>(hash.states));
            what.push_back("states of " + at(hash).name);
        }
        if (own.empty()) continue;
        std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(c.group->size()));
        if (auto s = c.group->all_gather(view(own), view(all)); !s) return std::move(s).error();
        if (found.empty()) found = difference(*c.group, all, own.size(), what);
    }
    return found;
}

template <class Scalar>
Status DataParallel<Scalar>::check_replicas() {
    if (groups_.world == nullptr) return sim::Done{};
    if (auto s = wait_for_gathers(); !s) return s;
    auto found = drift();
    if (!found) return std::move(found).error();
    Finding own{};
    std::copy_n(found->begin(), std::min(found->size(), own.size() - 1), own.begin());
    std::vector<char> all(own.size() * static_cast<std::size_t>(groups_.world->size()));
    if (auto s = groups_.world->all_gather(view(std::span<char>(own)), view(all)); !s) return s;
    for (std::size_t rank = 0; rank < all.size(); rank += own.size()) {
        if (all[rank] == 0) continue;
        return Error{ErrorCode::backend_failed, "step " + std::to_string(steps_),
                     std::string(all.data() + rank),
                     "go on from a checkpoint before that; where it happens again, test that "
                     "machine"};
    }
    return sim::Done{};
}

template std::vector<ReplicaHash> DataParallel<float>::hashes();
template std::vector<ReplicaHash> DataParallel<double>::hashes();
template Status DataParallel<float>::check_replicas();
template Status DataParallel<double>::check_replicas();

} // namespace shardplan::exec
