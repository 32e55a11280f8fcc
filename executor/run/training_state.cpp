#include "executor/run/training_state.hpp"

#include <algorithm>
#include <vector>

namespace shardplan::exec {

TensorPart state_part(const Parameter& p, const std::string& suffix, exec::Scalar scalar,
                      Index begin, Index end, std::byte* data) {
    const bool is_vector = p.whole_columns == 1;
    TensorPart part{p.name + suffix, scalar, {p.whole_rows}, {}};
    if (!is_vector) part.shape.push_back(p.whole_columns);
    std::vector<Box> local;
    Index there = 0;
    for (const RowRange& range : p.ranges) {
        Box& box = local.emplace_back(Box{{range.first_row}, {range.rows}});
        if (!is_vector) {
            box.first.push_back(p.first_column);
            box.extent.push_back(p.columns);
        }
        there += range.rows * p.columns;
    }
    const Index last = std::min(end, there);
    if (begin < last) part.boxes = boxes_of_range(local, begin, last, scalar, data);
    return part;
}

} // namespace shardplan::exec
