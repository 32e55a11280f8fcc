#include "executor/checkpoint/plan.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "simulator/io/json.hpp"
#include "simulator/spec/fields.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::exec {

using sim::field;
using sim::FieldVisitor;
using sim::in_quotes;

// Read back by the same program on another rank, so that nobody ever reads the labels.
void describe(FieldVisitor& v, Box& x) {
    field(v, {"first", "", "", true}, x.first);
    field(v, {"extent", "", "", true}, x.extent);
}
void describe(FieldVisitor& v, PartLayout& x) {
    field(v, {"name", "", "", true}, x.name);
    field(v, {"scalar", "", "", true}, x.scalar);
    field(v, {"shape", "", "", true}, x.shape);
    field(v, {"boxes", "", "", true}, x.boxes);
}
void describe(FieldVisitor& v, RankLayout& x) { field(v, {"parts", "", "", true}, x.parts); }

namespace {

/// Boxes of a tensor that some ranks hold alike.
struct Held {
    Box box;
    std::set<int> ranks;
};

/// A box that any of `ranks` can write.
struct Candidate {
    std::size_t tensor = 0;
    Box box;
    std::vector<int> ranks;
    Index bytes = 0;
};

struct TensorHolders {
    PlannedTensor tensor;
    int first_rank = 0; ///< who named it first, for errors
    std::map<std::tuple<std::vector<Index>, std::vector<Index>>, std::set<int>> boxes;
};

std::string shape_text(const PlannedTensor& tensor) {
    return fmt::format("{} of {}", to_text(whole_of(tensor.shape)), sim::name_of(tensor.scalar));
}

Result<std::map<std::string, TensorHolders>> collect(const std::vector<RankLayout>& ranks) {
    std::map<std::string, TensorHolders> out;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const int rank = static_cast<int>(r);
        for (const PartLayout& part : ranks[r].parts) {
            const PlannedTensor tensor{part.name, part.scalar, part.shape};
            const auto [at, is_new] = out.try_emplace(part.name, TensorHolders{tensor, rank, {}});
            const TensorHolders& known = at->second;
            if (known.tensor.scalar != part.scalar || known.tensor.shape != part.shape) {
                return Error{
                    ErrorCode::bad_input, "tensor " + in_quotes(part.name),
                    fmt::format("it is {} on rank {} and {} on rank {}", shape_text(known.tensor),
                                known.first_rank, shape_text(tensor), rank),
                    "all ranks state the shape and type of the whole tensor"};
            }
            for (const Box& box : part.boxes) {
                if (volume(box) > 0) at->second.boxes[{box.first, box.extent}].insert(rank);
            }
        }
    }
    return out;
}

/// Cuts what is held more than once into disjoint boxes, each with all ranks that hold it.
Result<std::vector<Candidate>> disjoint(const TensorHolders& tensor, std::size_t number) {
    std::vector<Held> held;
    for (const auto& [box, ranks] : tensor.boxes) {
        held.push_back({{std::get<0>(box), std::get<1>(box)}, ranks});
    }
    // Large ones first: small ones inside them then leave nothing, instead of holes in the large.
    std::stable_sort(held.begin(), held.end(),
                     [](const Held& a, const Held& b) { return volume(a.box) > volume(b.box); });
    std::vector<Candidate> out;
    std::vector<Box> missing{whole_of(tensor.tensor.shape)};
    const auto without = [](const std::vector<Box>& boxes, const Box& taken) {
        std::vector<Box> left;
        for (const Box& box : boxes) {
            const auto parts = subtract(box, taken);
            left.insert(left.end(), parts.begin(), parts.end());
        }
        return left;
    };
    for (std::size_t i = 0; i < held.size(); ++i) {
        std::vector<Box> fresh{held[i].box};
        for (std::size_t j = 0; j < i; ++j) {
            fresh = without(fresh, held[j].box);
        }
        missing = without(missing, held[i].box);
        for (Box& box : fresh) {
            std::set<int> ranks = held[i].ranks;
            for (std::size_t j = i + 1; j < held.size(); ++j) {
                if (contains(held[j].box, box)) {
                    ranks.insert(held[j].ranks.begin(), held[j].ranks.end());
                }
            }
            const auto bytes = volume(box) * static_cast<Index>(bytes_of(tensor.tensor.scalar));
            out.push_back({number, std::move(box), {ranks.begin(), ranks.end()}, bytes});
        }
    }
    if (!missing.empty()) {
        return Error{ErrorCode::bad_input, "tensor " + in_quotes(tensor.tensor.name),
                     fmt::format("no rank holds its elements {}", to_text(missing.front())),
                     "the boxes of all ranks together cover the whole tensor"};
    }
    return out;
}

/// Slices of a box for its holders, as even as the first dimension that is long enough allows.
void slice(const Candidate& whole, std::vector<Candidate>& out) {
    const auto holders = static_cast<Index>(whole.ranks.size());
    std::size_t d = 0;
    while (d < whole.box.extent.size() && whole.box.extent[d] < holders) {
        ++d;
    }
    if (d == whole.box.extent.size()) {
        out.push_back(whole);
        return;
    }
    const Index extent = whole.box.extent[d];
    for (Index i = 0; i < holders; ++i) {
        Candidate part = whole;
        const Index begin = extent * i / holders;
        part.box.first[d] += begin;
        part.box.extent[d] = extent * (i + 1) / holders - begin;
        part.bytes = whole.bytes / extent * part.box.extent[d];
        out.push_back(std::move(part));
    }
}

/// Picks who writes each of them.
std::vector<PlannedPiece> assign(const std::vector<Candidate>& candidates, std::size_t ranks) {
    Index total = 0;
    for (const Candidate& candidate : candidates) {
        total += candidate.bytes;
    }
    // Below a mebibyte, or an eighth of a rank's share, a slice costs more headers than it evens
    // out.
    const Index large = std::max(Index{1} << 20, total / static_cast<Index>(8 * ranks));
    std::vector<PlannedPiece> out;
    std::vector<Index> load(ranks, 0);
    std::vector<Candidate> free;
    const auto give = [&](const Candidate& candidate, int rank) {
        load[static_cast<std::size_t>(rank)] += candidate.bytes;
        out.push_back({candidate.tensor, candidate.box, rank, 0});
    };
    for (const Candidate& candidate : candidates) {
        if (candidate.ranks.size() == 1) {
            give(candidate, candidate.ranks.front());
        } else if (candidate.bytes > large) {
            slice(candidate, free);
        } else {
            free.push_back(candidate);
        }
    }
    std::stable_sort(free.begin(), free.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes > b.bytes; });
    for (const Candidate& candidate : free) {
        give(candidate,
             *std::min_element(candidate.ranks.begin(), candidate.ranks.end(), [&](int a, int b) {
                 return load[static_cast<std::size_t>(a)] < load[static_cast<std::size_t>(b)];
             }));
    }
    return out;
}

} // namespace

RankLayout layout_of(std::span<const TensorPart> parts) {
    RankLayout out;
    for (const TensorPart& part : parts) {
        PartLayout layout{part.name, part.scalar, part.shape, {}};
        for (const TensorBox& box : part.boxes) {
            layout.boxes.push_back(box.box);
        }
        out.parts.push_back(std::move(layout));
    }
    return out;
}

std::string write_layout(RankLayout layout) {
    return sim::write_described(layout, sim::Indent::compact);
}

Result<RankLayout> read_layout(const std::string& text) {
    return sim::read_described<RankLayout>(text, "what a rank holds");
}

Result<SavePlan> plan_save(const std::vector<RankLayout>& ranks) {
    auto tensors = collect(ranks);
    if (!tensors) return std::move(tensors).error();
    SavePlan plan;
    std::vector<Candidate> candidates;
    for (auto& [name, tensor] : *tensors) {
        auto boxes = disjoint(tensor, plan.tensors.size());
        if (!boxes) return std::move(boxes).error();
        std::move(boxes->begin(), boxes->end(), std::back_inserter(candidates));
        plan.tensors.push_back(std::move(tensor.tensor));
    }
    plan.pieces = assign(candidates, ranks.size());
    std::sort(plan.pieces.begin(), plan.pieces.end(),
              [](const PlannedPiece& a, const PlannedPiece& b) {
                  return std::tie(a.rank, a.tensor, a.box.first) <
                         std::tie(b.rank, b.tensor, b.box.first);
              });
    for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
        PlannedPiece& piece = plan.pieces[i];
        const bool again = i > 0 && plan.pieces[i - 1].rank == piece.rank &&
                           plan.pieces[i - 1].tensor == piece.tensor;
        piece.file = again ? plan.pieces[i - 1].file + 1 : 0;
        plan.files = std::max(plan.files, piece.file + 1);
    }
    return plan;
}

std::string shard_name(int rank, int file, int files) {
    return fmt::format("shard-{:05}-model-{:05}-of-{:05}.safetensors", rank + 1, file + 1, files);
}

} // namespace shardplan::exec
