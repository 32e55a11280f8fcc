#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "executor/kernels/kernels.hpp"
#include "simulator/units/result.hpp"

namespace shardplan::exec {

/// How tokens lie in a file.
enum class TokenFormat : std::uint8_t {
    bytes, ///< each byte is a token, 0 to 255
    u16,   ///< little-endian numbers of two bytes
    u32,   ///< little-endian numbers of four bytes
};

/// Ends a mapping into memory.
struct Unmapping {
    std::size_t bytes = 0;
    void operator()(const std::byte* at) const;
};

/// A text as numbered tokens: a file mapped into memory, or made up.
class TokenSource {
public:
    static sim::Result<TokenSource> open(const std::string& path, TokenFormat format);
    /// `count` tokens in [0, vocab) that depend on their place and the seed alone.
    static TokenSource synthetic(Index count, Index vocab, std::uint64_t seed);

    [[nodiscard]] Index size() const { return size_; }
    /// 0 <= i < size(). A number of 2^31 and more becomes -1, which no model accepts.
    [[nodiscard]] Token operator[](Index i) const;

private:
    std::unique_ptr<const std::byte, Unmapping> mapped_;
    TokenFormat format_ = TokenFormat::bytes;
    Index size_ = 0;
    Index vocab_ = 0;
    std::uint64_t seed_ = 0;
};

/// One data-parallel rank's share of a source.
struct Share {
    Index rank = 0;
    Index ranks = 1;
};

/// Samples of `sequence` tokens with the tokens that follow as targets, one after another through
/// the source, dealt out to the ranks in turn; after the last whole sample the first comes again.
class SampleStream {
public:
    /// Refuses sources shorter than one sample.
    static sim::Result<SampleStream> make(TokenSource source, Index sequence, Share share);

    /// Fills both with `tokens.size() / sequence` samples of this rank.
    void next(std::span<Token> tokens, std::span<Token> targets);

    /// Samples that one rank has read: what a checkpoint saves. With other ranks than before, the
    /// caller converts: position x ranks samples are read in all.
    [[nodiscard]] Index position() const { return position_; }
    void seek(Index position) { position_ = position; }
    /// Samples of one round through the source.
    [[nodiscard]] Index samples() const { return (source_.size() - 1) / sequence_; }

private:
    SampleStream(TokenSource source, Index sequence, Share share);

    TokenSource source_;
    Index sequence_ = 0;
    Share share_;
    Index position_ = 0;
};

} // namespace shardplan::exec
