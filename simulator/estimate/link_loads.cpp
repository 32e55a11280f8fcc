#include "simulator/estimate/link_loads.hpp"

#include <algorithm>
#include <cstdint>

namespace shardplan::sim {
namespace {

/// Writes over the loads that are there, so that their names keep their memory.
class LoadWriter {
public:
    explicit LoadWriter(std::vector<LinkLoad>& out) : out_(out) {}

    void begin(std::string_view dim, const GroupPath& path) {
        dim_ = dim;
        path_ = path.ranks > 1 && !path.levels.empty() ? &path : nullptr;
        begun_ = used_;
    }
    /// What each of the next `stages` sends.
    void add(std::int64_t first, std::int64_t stages, const GroupTraffic& traffic) {
        if (path_ == nullptr || traffic.bytes <= 0.0) return;
        const Bytes bytes(traffic.bytes);
        const Seconds seconds(traffic.seconds);
        if (used_ > begun_) {
            LinkLoad& last = out_[used_ - 1];
            if (last.first_stage + last.stages == first && last.per_step == bytes &&
                last.time == seconds) {
                last.stages += stages;
                return;
            }
        }
        if (used_ == out_.size()) out_.emplace_back();
        LinkLoad& load = out_[used_++];
        load.dim = dim_;
        load.tier = path_->levels.back().name;
        load.ranks = path_->ranks;
        load.first_stage = first;
        load.stages = stages;
        load.per_step = bytes;
        load.time = seconds;
    }
    void end() { out_.resize(used_); }

private:
    std::vector<LinkLoad>& out_;
    std::size_t used_ = 0;
    std::size_t begun_ = 0;
    std::string_view dim_;
    const GroupPath* path_ = nullptr;
};

} // namespace

void set_link_loads(const GroupPaths& paths, const PipelineShape& shape,
                    const std::vector<ShapeRun>& runs, const std::vector<StageTraffic>& traffic,
                    std::vector<LinkLoad>& out) {
    LoadWriter writer(out);
    const auto add = [&](std::string_view dim, Group group, GroupTraffic StageTraffic::*part) {
        writer.begin(dim, path_in(paths, group));
        std::int64_t stage = 0;
        for (std::size_t i = 0; i < runs.size(); ++i) {
            writer.add(stage, runs[i].count, traffic[i].*part);
            stage += runs[i].count;
        }
    };
    add("tp", Group::tp, &StageTraffic::tp);
    add("cp", Group::cp, &StageTraffic::cp);
    // experts that no group of ranks deals out may still be split
    const bool dealt = path_in(paths, Group::ep).ranks > 1;
    add("ep", dealt ? Group::ep : Group::etp, &StageTraffic::ep);
    if (shape.stages > 1) {
        writer.begin("pp", path_in(paths, Group::pp));
        std::int64_t stage = 0;
        for (const std::int64_t messages : messages_sent(shape)) {
            writer.add(stage++, 1, static_cast<double>(messages) * traffic.front().message);
        }
    }
    add("dp", Group::dp_cp, &StageTraffic::dp);
    add("dp", Group::pp, &StageTraffic::tied);
    writer.end();
}

Bytes most_sent(const std::vector<LinkLoad>& links, std::string_view dim) {
    std::vector<Bytes> stages;
    for (const LinkLoad& link : links) {
        if (link.dim != dim) continue;
        const auto first = static_cast<std::size_t>(link.first_stage);
        const std::size_t end = first + static_cast<std::size_t>(link.stages);
        stages.resize(std::max(stages.size(), end));
        for (std::size_t stage = first; stage < end; ++stage) {
            stages[stage] += link.per_step;
        }
    }
    const auto most = std::max_element(stages.begin(), stages.end());
    return most != stages.end() ? *most : Bytes{};
}

} // namespace shardplan::sim
