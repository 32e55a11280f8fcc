#include "simulator/spec/constants.hpp"

#include <utility>

namespace shardplan::sim {

namespace {

class ConstantWalk final : public FieldVisitor {
public:
    ConstantWalk(std::string path, const ConstantLook& look)
        : path_(std::move(path)), look_(look) {}

    void object(const FieldMeta& meta, ObjectAccess& fields) override {
        const std::string outer = std::exchange(path_, path_of(meta));
        if (auto* constant = dynamic_cast<FieldsOf<Constant>*>(&fields)) {
            look_(path_, meta, constant->value());
        } else {
            fields.visit_fields(*this);
        }
        path_ = outer;
    }
    void list(const FieldMeta& meta, ListAccess& items) override {
        const std::string path = path_of(meta);
        for (std::size_t i = 0; i < items.size(); ++i) {
            element_ = path + "[" + std::to_string(i) + "]";
            items.visit(*this, meta, i);
        }
        element_.clear();
    }
    void map(const FieldMeta& meta, MapAccess& items) override {
        const std::string path = path_of(meta);
        for (const std::string& key : items.keys()) {
            element_ = path + "." + key;
            items.visit(*this, meta, key);
        }
        element_.clear();
    }
    void quantity(const FieldMeta& /*meta*/, Dimension /*dimension*/, double& /*base*/) override {}
    void text(const FieldMeta& /*meta*/, std::string& /*value*/) override {}
    void choice(const FieldMeta& /*meta*/, std::span<const std::string_view> /*names*/,
                std::size_t& /*index*/) override {}
    void integer(const FieldMeta& /*meta*/, std::int64_t& /*value*/) override {}
    void flag(const FieldMeta& /*meta*/, bool& /*value*/) override {}
    bool optional(const FieldMeta& /*meta*/, bool present) override { return present; }

private:
    /// Elements have no key of their own: the path made for them is used once.
    std::string path_of(const FieldMeta& meta) {
        if (!element_.empty()) {
            return std::exchange(element_, "");
        }
        return path_.empty() ? std::string(meta.key) : path_ + "." + std::string(meta.key);
    }

    std::string path_;
    std::string element_;
    const ConstantLook& look_;
};

} // namespace

namespace detail {

void walk_constants(ObjectAccess& root, const std::string& path, const ConstantLook& look) {
    ConstantWalk walk(path, look);
    root.visit_fields(walk);
}

} // namespace detail

} // namespace shardplan::sim
