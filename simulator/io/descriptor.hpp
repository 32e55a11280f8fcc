#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "simulator/units/result.hpp"

namespace shardplan::sim {

/// An open file of the system; closes on every way out.
class Descriptor {
public:
    /// Negative: none.
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor();
    [[nodiscard]] int number() const { return number_; }
    /// Closes now; false if the system reports a failure that came late.
    bool close();

private:
    int number_;
};

/// Writes on, until all is written; false leaves the reason in errno.
bool write_all(const Descriptor& file, const void* data, std::size_t bytes);

/// "path: what: No such file or directory", with a hint for the usual numbers of errno.
Error system_error(const std::string& path, const std::string& what, int number);

} // namespace shardplan::sim
