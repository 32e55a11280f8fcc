#include "executor/optimizer/share_groups.hpp"

#include <algorithm>
#include <utility>

namespace shardplan::exec {

namespace {

Communicator* unless_alone(Communicator& group) { return group.size() > 1 ? &group : nullptr; }

class Maker {
public:
    Maker(const LayoutGroups& groups, const RankShare& share, const sim::Layout& layout)
        : groups_(groups), share_(share), layout_(layout) {}

    Result<ShareGroups> run(Communicator& world) {
        out_.world = unless_alone(world);
        out_.tp = unless_alone(groups_[sim::Group::tp]);
        const bool split = layout_.shard != sim::Shard::none;
        out_.dense.parts = split ? unless_alone(groups_[sim::Group::shard]) : nullptr;
        out_.dense.copies = unless_alone(groups_[split ? sim::Group::replica : sim::Group::dp_cp]);
        if (auto s = share_experts(); !s) return std::move(s).error();
        if (auto s = join_stages(); !s) return std::move(s).error();
        return std::move(out_);
    }

private:
    Status share_experts() {
        Communicator& all = groups_[sim::Group::expert_dp];
        // as many as the shard group has, or the most below that into which their holders go
        int parts = std::min(all.size(), static_cast<int>(out_.dense.part().parts));
        while (all.size() % parts != 0)
            --parts;
        if (parts == 1) {
            out_.expert.copies = unless_alone(all);
        } else if (parts == all.size()) {
            out_.expert.parts = &all;
        } else {
            if (auto s = cut(all, all.rank() / parts, out_.expert.parts); !s) return s;
            if (auto s = cut(all, all.rank() % parts, out_.expert.copies); !s) return s;
        }
        return sim::Done{};
    }
    Status join_stages() {
        if (layout_.pp == 1) return sim::Done{};
        Communicator& stages = groups_[sim::Group::pp];
        const auto stage = static_cast<int>(share_.stage);
        if (share_.mirrored) {
            return cut(stages, std::min(stage, stages.size() - 1 - stage), out_.mirror);
        }
        // those without the table are a group too, since all have to take part
        Communicator* group = nullptr;
        if (auto s = cut(stages, share_.table_on_two_stages ? 0 : 1, group); !s) return s;
        if (share_.table_on_two_stages) out_.table = group;
        return sim::Done{};
    }
    Status cut(Communicator& from, int colour, Communicator*& to) {
        // gradients of several stages are no messages between them
        const bool stages = from.name() == sim::name_of(sim::Group::pp);
        auto made = from.split(colour, from.rank(), stages ? "stages" : from.name());
        if (!made) return std::move(made).error();
        to = out_.own.emplace_back(std::move(*made)).get();
        // tiers and servers were chosen for the size of the whole group
        CollectiveChoice choice = to->choice();
        choice.tiers.clear();
        choice.servers = std::min(choice.servers, to->size());
        return to->set_choice(std::move(choice));
    }

    const LayoutGroups& groups_;
    const RankShare& share_;
    const sim::Layout& layout_;
    ShareGroups out_;
};

} // namespace

Result<ShareGroups> ShareGroups::make(Communicator& world, const LayoutGroups& groups,
                                      const RankShare& share, const sim::Layout& layout) {
    return Maker(groups, share, layout).run(world);
}

} // namespace shardplan::exec
