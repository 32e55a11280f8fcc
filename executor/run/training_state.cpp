#include "executor/run/training_state.hpp"

namespace shardplan::exec {

TensorPart state_part(const Parameter& p, const std::string& suffix, exec::Scalar scalar,
                      std::byte* data) {
    const bool is_vector = p.whole_columns == 1;
    TensorPart part{p.name + suffix, scalar, {p.whole_rows}, {}};
    if (!is_vector) part.shape.push_back(p.whole_columns);
    for (const RowRange& range : p.ranges) {
        TensorBox& box = part.boxes.emplace_back();
        box.box = {{range.first_row}, {range.rows}};
        if (!is_vector) {
            box.box.first.push_back(p.first_column);
            box.box.extent.push_back(p.columns);
        }
        box.data = data + range.row * p.columns * static_cast<Index>(bytes_of(scalar));
    }
    return part;
}

} // namespace shardplan::exec
