#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/units/constant.hpp"
#include "simulator/units/quantity.hpp"
#include "simulator/units/text.hpp"

/// The description of every input type, written once per aggregate as
/// `void describe(FieldVisitor&, T&)`. Everything that needs the list of fields is a visitor over
/// it: the JSON reader and writer, the schemas, `--set path=value`, reader hints, the FieldTable
/// that forms and sensitivity iterate over. Adding a field is one member and one line in
/// `describe`.
namespace shardplan::sim {

/// What a person must know about one field.
struct FieldMeta {
    std::string_view key;   ///< name inside its object, snake_case
    std::string_view label; ///< a few words for tables and forms
    std::string_view doc;   ///< one sentence: meaning, unit, what the default stands for
    /// Absent is an error; otherwise the default is taken and recorded. A number whose default lies
    /// outside its bounds is required in any case.
    bool required = false;
    double lo = -std::numeric_limits<double>::infinity(); ///< smallest legal number, base units
    double hi = std::numeric_limits<double>::infinity();  ///< largest legal number, base units
};

class FieldVisitor;

/// A vector seen through its elements, for visitors that do not know the element type.
class ListAccess {
public:
    virtual ~ListAccess() = default;
    [[nodiscard]] virtual std::size_t size() const = 0;
    virtual void resize(std::size_t n) = 0;
    /// Visits element i under `meta` (key: the index as text).
    virtual void visit(FieldVisitor& v, const FieldMeta& meta, std::size_t i) = 0;
};

/// A string-keyed map seen through its elements.
class MapAccess {
public:
    virtual ~MapAccess() = default;
    [[nodiscard]] virtual std::vector<std::string> keys() const = 0;
    /// Visits the element of `key`, which is made if it does not exist.
    virtual void visit(FieldVisitor& v, const FieldMeta& meta, const std::string& key) = 0;
};

/// An aggregate seen through its fields.
class ObjectAccess {
public:
    virtual ~ObjectAccess() = default;
    virtual void visit_fields(FieldVisitor& v) = 0;
};

/// One of the visitors named above. Numbers are handed over in base units.
class FieldVisitor {
public:
    virtual ~FieldVisitor() = default;
    virtual void integer(const FieldMeta& meta, std::int64_t& value) = 0;
    virtual void quantity(const FieldMeta& meta, Dimension dimension, double& base) = 0;
    virtual void flag(const FieldMeta& meta, bool& value) = 0;
    virtual void text(const FieldMeta& meta, std::string& value) = 0;
    /// `names[index]` is the value.
    virtual void choice(const FieldMeta& meta, std::span<const std::string_view> names,
                        std::size_t& index) = 0;
    virtual void list(const FieldMeta& meta, ListAccess& items) = 0;
    virtual void map(const FieldMeta& meta, MapAccess& items) = 0;
    virtual void object(const FieldMeta& meta, ObjectAccess& fields) = 0;
    /// Asked before an optional field: true = visit it (it will be made if absent). `present` is
    /// its state now.
    virtual bool optional(const FieldMeta& meta, bool present) = 0;
};

/// Specialise for each enum that stands in files: the names in enumerator order, starting at 0.
/// `template <> struct EnumNames<Kind> { static constexpr std::array<std::string_view, N> names;
/// };`
template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = requires {
    EnumNames<E>::names;
};

/// The name of an enumerator, as in files.
template <NamedEnum E>
constexpr std::string_view name_of(E value) {
    return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

/// The enumerator of a name, if there is one.
template <NamedEnum E>
constexpr std::optional<E> enum_from(std::string_view name) {
    for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i) {
        if (EnumNames<E>::names[i] == name) {
            return static_cast<E>(i);
        }
    }
    return std::nullopt;
}

template <int B, int S, int F>
constexpr Dimension dimension_of(Quantity<B, S, F> /*tag*/) {
    if constexpr (B == 1 && S == 0 && F == 0) {
        return Dimension::bytes;
    } else if constexpr (B == 0 && S == 1 && F == 0) {
        return Dimension::seconds;
    } else if constexpr (B == 0 && S == 0 && F == 1) {
        return Dimension::flops;
    } else if constexpr (B == 1 && S == -1 && F == 0) {
        return Dimension::bandwidth;
    } else {
        static_assert(B == 0 && S == -1 && F == 1, "no text form for this unit");
        return Dimension::flop_rate;
    }
}

// --- field(): one overload per kind of member, used inside describe() -------------------------

inline void field(FieldVisitor& v, const FieldMeta& m, std::int64_t& x) { v.integer(m, x); }
inline void field(FieldVisitor& v, const FieldMeta& m, double& x) {
    v.quantity(m, Dimension::scalar, x);
}
inline void field(FieldVisitor& v, const FieldMeta& m, bool& x) { v.flag(m, x); }
inline void field(FieldVisitor& v, const FieldMeta& m, std::string& x) { v.text(m, x); }
template <int B, int S, int F>
void field(FieldVisitor& v, const FieldMeta& m, Quantity<B, S, F>& x) {
    double base = x.value();
    v.quantity(m, dimension_of(x), base);
    x = Quantity<B, S, F>(base);
}
template <NamedEnum E>
void field(FieldVisitor& v, const FieldMeta& m, E& x) {
    auto index = static_cast<std::size_t>(x);
    v.choice(m, EnumNames<E>::names, index);
    x = static_cast<E>(index);
}
template <class T>
concept Described = requires(FieldVisitor& v, T& x) {
    describe(v, x);
};

/// The fields of one value, which must outlive this.
template <class T>
class FieldsOf final : public ObjectAccess {
public:
    explicit FieldsOf(T& value) : value_(value) {}
    void visit_fields(FieldVisitor& v) override { describe(v, value_); }
    [[nodiscard]] T& value() { return value_; }

private:
    T& value_;
};

template <Described T>
void field(FieldVisitor& v, const FieldMeta& m, T& x);
template <class T>
void field(FieldVisitor& v, const FieldMeta& m, std::vector<T>& xs);
template <class T>
void field(FieldVisitor& v, const FieldMeta& m, std::map<std::string, T>& xs);
template <class T>
void field(FieldVisitor& v, const FieldMeta& m, std::optional<T>& x) {
    if (!v.optional(m, x.has_value())) {
        x.reset();
        return;
    }
    if (!x) {
        x.emplace();
    }
    field(v, m, *x);
}

template <Described T>
void field(FieldVisitor& v, const FieldMeta& m, T& x) {
    FieldsOf<T> fields(x);
    v.object(m, fields);
}

template <class T>
void field(FieldVisitor& v, const FieldMeta& m, std::vector<T>& xs) {
    struct Items final : ListAccess {
        explicit Items(std::vector<T>& target) : xs(target) {}
        [[nodiscard]] std::size_t size() const override { return xs.size(); }
        void resize(std::size_t n) override { xs.resize(n); }
        void visit(FieldVisitor& visitor, const FieldMeta& meta, std::size_t i) override {
            field(visitor, meta, xs[i]);
        }
        std::vector<T>& xs;
    } items(xs);
    v.list(m, items);
}

template <class T>
void field(FieldVisitor& v, const FieldMeta& m, std::map<std::string, T>& xs) {
    struct Items final : MapAccess {
        explicit Items(std::map<std::string, T>& target) : xs(target) {}
        [[nodiscard]] std::vector<std::string> keys() const override {
            std::vector<std::string> out;
            for (const auto& [key, value] : xs) {
                out.push_back(key);
            }
            return out;
        }
        void visit(FieldVisitor& visitor, const FieldMeta& meta, const std::string& key) override {
            field(visitor, meta, xs[key]);
        }
        std::map<std::string, T>& xs;
    } items(xs);
    v.map(m, items);
}

/// One row of the FieldTable: a leaf field of an input type, with its path from the root.
struct FieldInfo {
    std::string path; ///< "job.sequence.mean"; list elements as "[]", map elements as "{}"
    std::string label;
    std::string doc;
    std::string type;         ///< "integer", "number", "bytes", "bandwidth", "choice", ...
    std::string default_text; ///< as a person would write it
    std::vector<std::string> choices;
    bool required = false;
    double lo = -std::numeric_limits<double>::infinity();
    double hi = std::numeric_limits<double>::infinity();

    friend bool operator==(const FieldInfo&, const FieldInfo&) = default;
};

namespace detail {
/// Collects the rows of `root` below `prefix`.
std::vector<FieldInfo> collect_fields(ObjectAccess& root, std::string_view prefix);
} // namespace detail

/// The FieldTable of an input type; defaults are those of a value-initialised T.
template <Described T>
std::vector<FieldInfo> field_table(std::string_view prefix) {
    T value{};
    FieldsOf<T> fields(value);
    return detail::collect_fields(fields, prefix);
}

template <>
struct EnumNames<Origin> {
    static constexpr std::array<std::string_view, 7> names = {
        "datasheet",       "source_code",    "kernel_data", "collective_data",
        "own_measurement", "fitted_to_runs", "assumed"};
};

/// In files a Constant is an object whose `value` is a bare number in `unit`, a base unit.
void describe(FieldVisitor& v, Constant& x);

} // namespace shardplan::sim
