#include "executor/run/token_source.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simulator/units/hash_mix.hpp"

namespace shardplan::exec {

namespace {

using sim::Error;
using sim::ErrorCode;

Index width_of(TokenFormat format) {
    switch (format) {
        case TokenFormat::bytes:
            return 1;
        case TokenFormat::u16:
            return 2;
        case TokenFormat::u32:
            break;
    }
    return 4;
}

/// Closes at the end of the scope; a mapping outlives it.
struct File {
    int number = -1;
    explicit File(const std::string& path) : number(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (number >= 0) ::close(number);
    }
};

Error cannot_read(const std::string& path) {
    const int reason = errno;
    return {reason == ENOENT ? ErrorCode::not_found : ErrorCode::bad_input, path,
            std::string("the tokens cannot be read: ") + std::strerror(reason),
            "name a readable file"};
}

} // namespace

void Unmapping::operator()(const std::byte* at) const {
    // munmap takes what mmap gave, which was not const
    ::munmap(const_cast<std::byte*>(at), bytes); // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

sim::Result<TokenSource> TokenSource::open(const std::string& path, TokenFormat format) {
    const File file(path);
    struct stat about {};
    if (file.number < 0 || ::fstat(file.number, &about) != 0) return cannot_read(path);
    if (!S_ISREG(about.st_mode)) {
        return Error{ErrorCode::bad_input, path, "this is not a file", "name a file of tokens"};
    }
    const auto bytes = static_cast<Index>(about.st_size);
    const Index width = width_of(format);
    if (bytes == 0 || bytes % width != 0) {
        return Error{ErrorCode::bad_input, path,
                     std::to_string(bytes) + " bytes are no whole number of tokens of " +
                         std::to_string(width) + " bytes",
                     "name the format that the file was written in"};
    }
    void* at =
        ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_PRIVATE, file.number, 0);
    if (at == MAP_FAILED) return cannot_read(path);
    TokenSource source;
    source.mapped_ = {static_cast<const std::byte*>(at),
                      Unmapping{static_cast<std::size_t>(bytes)}};
    source.format_ = format;
    source.size_ = bytes / width;
    return source;
}

TokenSource TokenSource::synthetic(Index count, Index vocab, std::uint64_t seed) {
    TokenSource source;
    source.size_ = count;
    source.vocab_ = vocab;
    source.seed_ = seed;
    return source;
}

Token TokenSource::operator[](Index i) const {
    if (mapped_ == nullptr) {
        const std::uint64_t mixed = sim::hash_mix(seed_, static_cast<std::uint64_t>(i));
        return static_cast<Token>(mixed % static_cast<std::uint64_t>(vocab_));
    }
    const Index width = width_of(format_);
    const std::byte* at = mapped_.get() + i * width;
    std::uint32_t token = 0;
    for (Index b = width - 1; b >= 0; --b) {
        token = token << 8U | std::to_integer<std::uint32_t>(at[b]);
    }
    return token > 0x7fffffffU ? -1 : static_cast<Token>(token);
}

sim::Result<SampleStream> SampleStream::make(TokenSource source, Index sequence, Share share) {
    if (sequence < 1 || share.ranks < 1 || share.rank < 0 || share.rank >= share.ranks) {
        return Error{ErrorCode::bad_input, "data", "no such sequence length or rank",
                     "use a sequence of at least 1, and a rank below the number of ranks"};
    }
    if (source.size() <= sequence) {
        return Error{ErrorCode::bad_input, "data",
                     std::to_string(source.size()) + " tokens are fewer than one sample of " +
                         std::to_string(sequence) + " and the token after it",
                     "use a longer file or a shorter sequence"};
    }
    return SampleStream(std::move(source), sequence, share);
}

SampleStream::SampleStream(TokenSource source, Index sequence, Share share)
    : source_(std::move(source)), sequence_(sequence), share_(share) {}

void SampleStream::next(std::span<Token> tokens, std::span<Token> targets) {
    const auto count = static_cast<Index>(tokens.size()) / sequence_;
    for (Index n = 0; n < count; ++n, ++position_) {
        const Index sample = (position_ * share_.ranks + share_.rank) % samples();
        for (Index i = 0; i < sequence_; ++i) {
            const auto at = static_cast<std::size_t>(n * sequence_ + i);
            tokens[at] = source_[sample * sequence_ + i];
            targets[at] = source_[sample * sequence_ + i + 1];
        }
    }
}

} // namespace shardplan::exec
