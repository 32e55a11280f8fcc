#include "executor/model/expert_exchange.hpp"

#include <algorithm>
#include <numeric>

namespace shardplan::exec {

template <class Scalar>
ExpertExchange<Scalar>::ExpertExchange(Kernels<Scalar>* kernels, Arena* arena, Links* links,
                                       Index experts, bool gathers)
    : kernels_(kernels),
      arena_(arena),
      links_(links),
      ep_(links->share().ep),
      etp_(links->share().etp),
      own_experts_(experts / ep_.parts),
      gathers_(gathers && etp_.parts > 1) {}

namespace {

std::vector<Index> sum_by_source(const std::vector<Index>& counts, Index sources, Index each) {
    std::vector<Index> sums;
    for (Index source = 0; source < sources; ++source) {
        const auto first = counts.begin() + source * each;
        sums.push_back(std::accumulate(first, first + each, Index{0}));
    }
    return sums;
}

std::vector<Index> elements(std::vector<Index> rows, Index width) {
    for (Index& count : rows) {
        count *= width;
    }
    return rows;
}

} // namespace

/// Rows come source by source, each in the order of experts. `counts`: rows by source and expert.
template <class Scalar>
void ExpertExchange<Scalar>::order(const std::vector<Index>& counts, Index sources,
                                   ExpertWay& way) const {
    const auto at = [&](Index source, Index expert) {
        return counts[static_cast<std::size_t>(source * own_experts_ + expert)];
    };
    std::vector<Index> next(counts.size()); // row at the experts, by source and expert
    way.offsets.assign(1, 0);
    Index row = 0;
    for (Index expert = 0; expert < own_experts_; ++expert) {
        for (Index source = 0; source < sources; ++source) {
            next[static_cast<std::size_t>(source * own_experts_ + expert)] = row;
            row += at(source, expert);
        }
        way.offsets.push_back(row);
    }
    way.rows = row;
    way.place.resize(static_cast<std::size_t>(row));
    way.back.resize(static_cast<std::size_t>(row));
    std::int32_t arrived = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        for (Index j = 0; j < counts[i]; ++j) {
            const auto to = static_cast<std::size_t>(next[i] + j);
            way.place[static_cast<std::size_t>(arrived)] = static_cast<std::int32_t>(to);
            way.back[to] = arrived++;
        }
    }
}

template <class Scalar>
ExpertWay ExpertExchange<Scalar>::way(const std::vector<Index>& offsets) const {
    ExpertWay way;
    if (!moves()) {
        way.offsets = offsets;
        way.rows = offsets.back();
        return way;
    }
    std::vector<Index> counts(offsets.size() - 1);
    for (std::size_t e = 0; e < counts.size(); ++e) {
        counts[e] = offsets[e + 1] - offsets[e];
    }
    way.sent = sum_by_source(counts, ep_.parts, own_experts_);
    std::vector<Index> come(counts.size(), 0); // by source and own expert; zeros if that fails
    if (ep_.parts > 1) {
        links_->all_to_all(sim::Group::ep, counts.data(), come.data(),
                           static_cast<Index>(counts.size()));
    } else {
        come = counts;
    }
    way.received = sum_by_source(come, ep_.parts, own_experts_);
    if (!gathers_) {
        order(come, ep_.parts, way);
        return way;
    }
    const auto each = static_cast<Index>(come.size());
    std::vector<Index> all(come.size() * static_cast<std::size_t>(etp_.parts), 0);
    links_->all_gather(sim::Group::etp, come.data(), each, all.data());
    if (links_->failed()) { // no more rows than have come here
        std::fill(all.begin(), all.end(), Index{0});
        std::copy(come.begin(), come.end(), all.begin() + etp_.part * each);
    }
    way.gathered = sum_by_source(all, etp_.parts, each);
    order(all, etp_.parts * ep_.parts, way);
    return way;
}

template <class Scalar>
Index ExpertExchange<Scalar>::first_own(const ExpertWay& way) const {
    if (!gathers_) return 0;
    return std::accumulate(way.gathered.begin(), way.gathered.begin() + etp_.part, Index{0});
}

template <class Scalar>
void ExpertExchange<Scalar>::to_experts(const ExpertWay& way, Index width, Scalar* sorted,
                                        Scalar* rows, Sent as) const {
    Scratch<Scalar> come(*arena_, way.rows * width);
    Scalar* own = come.data() + first_own(way) * width;
    if (ep_.parts > 1) {
        links_->all_to_all_v(sim::Group::ep, sorted, elements(way.sent, width), own,
                             elements(way.received, width), as);
    } else {
        std::copy_n(sorted, way.sent[0] * width, own);
    }
    if (gathers_)
        links_->share_parts(sim::Group::etp, come.data(), elements(way.gathered, width), as);
    kernels_->move_rows(way.rows, width, way.place.data(), come.data(), rows);
}

template <class Scalar>
void ExpertExchange<Scalar>::from_experts(const ExpertWay& way, Index width, Scratch<Scalar> rows,
                                          Scalar* sorted, Sent as) const {
    Scratch<Scalar> going(*arena_, way.rows * width);
    kernels_->move_rows(way.rows, width, way.back.data(), rows.data(), going.data());
    rows.release();
    if (gathers_)
        links_->sum_parts(sim::Group::etp, going.data(), elements(way.gathered, width), as);
    Scalar* own = going.data() + first_own(way) * width;
    if (ep_.parts > 1) {
        links_->all_to_all_v(sim::Group::ep, own, elements(way.received, width), sorted,
                             elements(way.sent, width), as);
    } else {
        std::copy_n(own, way.sent[0] * width, sorted);
    }
}

template class ExpertExchange<float>;
template class ExpertExchange<double>;

} // namespace shardplan::exec
