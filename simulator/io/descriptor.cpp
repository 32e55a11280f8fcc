#include "simulator/io/descriptor.hpp"

#include <cerrno>
#include <system_error>

#include <unistd.h>

namespace shardplan::sim {

Descriptor::~Descriptor() {
    if (number_ >= 0) {
        ::close(number_);
    }
}

bool Descriptor::close() { return ::close(std::exchange(number_, -1)) == 0; }

bool write_all(const Descriptor& file, const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = ::write(file.number(), at, bytes);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return false;
        }
        at += written;
        bytes -= static_cast<std::size_t>(written);
    }
    return true;
}

Error system_error(const std::string& path, const std::string& what, int number) {
    const bool is_missing = number == ENOENT || number == ENOTDIR;
    std::string hint = "check the path for slips";
    if (number == EACCES || number == EPERM || number == EROFS) {
        hint = "check the permissions";
    } else if (number == ENOSPC || number == EDQUOT) {
        hint = "make room, or name a folder on another disk";
    }
    return {is_missing ? ErrorCode::not_found : ErrorCode::bad_input, path,
            what + ": " + std::generic_category().message(number), std::move(hint)};
}

} // namespace shardplan::sim
