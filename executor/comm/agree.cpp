#include "executor/comm/agree.hpp"

#include <algorithm>

#include "simulator/io/json.hpp"
#include "simulator/spec/fields.hpp"

namespace shardplan::exec {

namespace {

using sim::field;

/// An Error on its way to another rank.
struct SentError {
    std::int64_t code = 0;
    std::string where, what, hint;
};

void describe(sim::FieldVisitor& v, SentError& x) {
    field(v, {"code", "", "", true}, x.code);
    field(v, {"where", "", "", true}, x.where);
    field(v, {"what", "", "", true}, x.what);
    field(v, {"hint", "", "", true}, x.hint);
}

std::string write_error(const Status& status) {
    if (status) return {};
    const Error& error = status.error();
    const SentError sent{static_cast<std::int64_t>(error.code), error.where, error.what,
                         error.hint};
    return sim::write_described(sent, sim::Indent::compact);
}

} // namespace

Result<std::vector<std::string>> gather_texts(Communicator& world, const std::string& own) {
    const auto ranks = static_cast<std::size_t>(world.size());
    const std::vector<std::int64_t> size{static_cast<std::int64_t>(own.size())};
    std::vector<std::int64_t> sizes(ranks);
    if (auto status = world.all_gather(const_view(size), view(sizes)); !status) {
        return std::move(status).error();
    }
    // As all gather the same number of bytes, short texts are filled up.
    const auto longest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
    std::vector<std::string> out(ranks);
    if (longest == 0) return out;
    std::vector<char> padded(own.begin(), own.end());
    padded.resize(longest);
    std::vector<char> all(longest * ranks);
    if (auto status = world.all_gather(const_view(padded), view(all)); !status) {
        return std::move(status).error();
    }
    for (std::size_t r = 0; r < ranks; ++r) {
        out[r].assign(all.data() + r * longest, static_cast<std::size_t>(sizes[r]));
    }
    return out;
}

Result<std::string> text_of_root(Communicator& world, const std::string& own) {
    std::vector<std::int64_t> size{static_cast<std::int64_t>(own.size())};
    if (auto status = world.broadcast(view(size), 0); !status) return std::move(status).error();
    std::vector<char> text(own.begin(), own.end());
    text.resize(static_cast<std::size_t>(size[0]));
    if (!text.empty()) {
        if (auto status = world.broadcast(view(text), 0); !status) {
            return std::move(status).error();
        }
    }
    return std::string(text.begin(), text.end());
}

Status agree(Communicator& world, const Status& own) {
    const auto errors = gather_texts(world, write_error(own));
    if (!errors) return errors.error();
    for (std::size_t r = 0; r < errors->size(); ++r) {
        const std::string& text = (*errors)[r];
        if (text.empty()) continue;
        auto sent = sim::read_described<SentError>(text, "error of rank " + std::to_string(r));
        if (!sent) return std::move(sent).error();
        return Error{static_cast<ErrorCode>(sent->code),
                     "rank " + std::to_string(r) + ": " + sent->where, sent->what, sent->hint};
    }
    return sim::Done{};
}

} // namespace shardplan::exec
