#include "simulator/io/file.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simulator/io/descriptor.hpp"

namespace shardplan::sim {

namespace {

constexpr std::size_t largest_file = std::size_t{64} << 20U;

/// The file a path leads to through links; the path itself if nothing is there yet.
std::string resolved(const std::string& path) {
    char* real = ::realpath(path.c_str(), nullptr);
    if (real == nullptr) {
        return path;
    }
    std::string out = real;
    std::free(real); // NOLINT: realpath allocates with malloc
    return out;
}

/// Hands pieces on to an open file.
TextSink sink_of(const std::string& path, const Descriptor& file) {
    return [&path, &file](std::string_view text) -> Status {
        if (!write_all(file, text.data(), text.size())) {
            return system_error(path, "this cannot be written", errno);
        }
        return Done{};
    };
}

} // namespace

Result<std::string> read_file(const std::string& path) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) {
        return system_error(path, "this file cannot be opened", errno);
    }
    struct stat status {};
    if (::fstat(file.number(), &status) == 0 && S_ISDIR(status.st_mode)) {
        return Error{ErrorCode::bad_input, path, "this is a folder, not a file",
                     "name a file inside it"};
    }
    std::string text;
    std::array<char, 1U << 16U> buffer{};
    while (true) {
        const ssize_t count = ::read(file.number(), buffer.data(), buffer.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return system_error(path, "this file cannot be read", errno);
        }
        if (count == 0) {
            return text;
        }
        text.append(buffer.data(), static_cast<std::size_t>(count));
        if (text.size() > largest_file) {
            return Error{ErrorCode::bad_input, path, "this file is larger than 64 MiB",
                         "check that it is the file you mean, or split it"};
        }
    }
}

Status write_file(const std::string& path, std::string_view text) {
    return write_file_in_pieces(path, [&](const TextSink& sink) { return sink(text); });
}

Status write_file_in_pieces(const std::string& path,
                            const std::function<Status(const TextSink&)>& write) {
    const std::string target = resolved(path);
    struct stat status {};
    const bool exists = ::stat(target.c_str(), &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) {
        return Error{ErrorCode::bad_input, path, "this is a folder, not a file",
                     "name a file inside it"};
    }
    if (exists && !S_ISREG(status.st_mode)) {
        const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
        if (file.number() < 0) {
            return system_error(path, "this cannot be written", errno);
        }
        return write(sink_of(path, file));
    }
    // The process number keeps two programs that write the same file apart.
    const std::string temporary = target + ".new-" + std::to_string(::getpid());
    const mode_t permissions = exists ? status.st_mode & 0777U : 0666U; // less the umask if new
    Descriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, permissions));
    if (file.number() < 0) {
        return system_error(path, "this file cannot be written", errno);
    }
    Status written = write(sink_of(path, file));
    if (written && (::fsync(file.number()) != 0 || !file.close() ||
                    ::rename(temporary.c_str(), target.c_str()) != 0)) {
        written = system_error(path, "this file cannot be written", errno);
    }
    if (!written) {
        ::unlink(temporary.c_str());
    }
    return written;
}

} // namespace shardplan::sim
