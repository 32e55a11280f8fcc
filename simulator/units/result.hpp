#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace shardplan::sim {

/// What kind of failure an Error is; decides the exit code of a program (2 except where noted).
enum class ErrorCode {
    bad_input,      ///< a file, flag or value that cannot be used as given
    not_found,      ///< a name or file that does not exist
    unsupported,    ///< understood, but not planned for yet
    backend_failed, ///< a run or a child process failed (exit code 3)
};

/// Why something could not be done, in words for the person who can mend it.
struct Error {
    ErrorCode code = ErrorCode::bad_input;
    std::string where; ///< file and JSON pointer, file and line, or flag
    std::string what;  ///< one sentence
    std::string hint;  ///< what to type instead: nearest name, accepted units, nearest legal value

    friend bool operator==(const Error&, const Error&) = default;
};

/// "where: what (hint)", on one line.
[[nodiscard]] std::string to_text(const Error& error);

/// A value or the Error that kept it from being made. Names follow std::expected, which g++ 12
/// does not have.
template <class T>
class [[nodiscard]] Result {
public:
    using value_type = T;

    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}     // NOLINT
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {} // NOLINT

    [[nodiscard]] bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }

    [[nodiscard]] T& value() & {
        assert(has_value());
        return *std::get_if<0>(&state_);
    }
    [[nodiscard]] const T& value() const& {
        assert(has_value());
        return *std::get_if<0>(&state_);
    }
    /// By value, so that `for (auto& x : f().value())` does not outlive what it walks.
    [[nodiscard]] T value() && {
        assert(has_value());
        return std::move(*std::get_if<0>(&state_));
    }
    [[nodiscard]] T& operator*() & { return value(); }
    [[nodiscard]] const T& operator*() const& { return value(); }
    [[nodiscard]] T operator*() && { return std::move(*this).value(); }
    [[nodiscard]] T* operator->() { return &value(); }
    [[nodiscard]] const T* operator->() const { return &value(); }

    [[nodiscard]] const Error& error() const& {
        assert(!has_value());
        return *std::get_if<1>(&state_);
    }
    [[nodiscard]] Error&& error() && {
        assert(!has_value());
        return std::move(*std::get_if<1>(&state_));
    }

    /// Applies `f: T -> Result<U>` to the value, or passes the error on.
    template <class F>
    auto and_then(F&& f) && -> decltype(f(std::declval<T>())) {
        if (!has_value()) {
            return std::move(*this).error();
        }
        return std::forward<F>(f)(std::move(*this).value());
    }

private:
    std::variant<T, Error> state_;
};

/// Success without a value.
struct Done {
    friend bool operator==(Done, Done) = default;
};

using Status = Result<Done>;

} // namespace shardplan::sim
