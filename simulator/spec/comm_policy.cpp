#include "simulator/spec/comm_policy.hpp"

#include <algorithm>
#include <cctype>
#include <string>

#include "simulator/units/in_quotes.hpp"

namespace shardplan::sim {
namespace {

template <class E>
std::uint32_t bit(E value) {
    return 1U << static_cast<unsigned>(value);
}

template <class E>
std::uint32_t bits(const std::vector<E>& values) {
    std::uint32_t out = 0;
    for (const E value : values) {
        out |= bit(value);
    }
    return out;
}

/// What a library picks from when nobody forces it.
std::uint32_t choices_of(CommLibrary library) {
    if (library == CommLibrary::gloo || library == CommLibrary::mpi) {
        return bit(Algorithm::ring) | bit(Algorithm::tree) | bit(Algorithm::halving_doubling);
    }
    return bit(Algorithm::ring) | bit(Algorithm::tree) | bit(Algorithm::nvls) |
           bit(Algorithm::nvls_tree) | bit(Algorithm::pat) | bit(Algorithm::collnet_chain) |
           bit(Algorithm::collnet_direct);
}

/// Lower case without separators: "NVLSTree", "nvls_tree" and "nvls-tree" are one name.
std::string plain(std::string_view word) {
    std::string out;
    for (const char c : word) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
            out.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
        }
    }
    return out;
}

template <class E>
Result<std::vector<E>> values_of(std::string_view text, std::string_view where,
                                 std::string_view what) {
    std::vector<E> named;
    const bool excludes = text.starts_with('^');
    if (excludes) {
        text.remove_prefix(1);
    }
    std::string known;
    for (const std::string_view name : EnumNames<E>::names) {
        known += (known.empty() ? "" : ", ") + std::string(name);
    }
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        const std::string word = plain(text.substr(0, end));
        const auto& names = EnumNames<E>::names;
        const auto* it = std::find_if(names.begin(), names.end(),
                                      [&](std::string_view name) { return plain(name) == word; });
        if (it == names.end()) {
            return Error{ErrorCode::bad_input, std::string(where),
                         "there is no " + std::string(what) + " " + in_quotes(text.substr(0, end)),
                         "write one or more of " + known + ", separated by commas"};
        }
        named.push_back(static_cast<E>(it - names.begin()));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!excludes) {
        return named;
    }
    std::vector<E> rest;
    for (std::size_t i = 0; i < EnumNames<E>::names.size(); ++i) {
        const auto value = static_cast<E>(i);
        if (std::find(named.begin(), named.end(), value) == named.end()) {
            rest.push_back(value);
        }
    }
    return rest;
}

} // namespace

std::uint32_t allowed_algorithms(const CommPolicy& policy, bool on_cpus) {
    const CommLibrary library = policy.library != CommLibrary::automatic ? policy.library
                                : on_cpus                                ? CommLibrary::gloo
                                                                         : CommLibrary::nccl;
    return policy.algorithms.empty() ? choices_of(library) : bits(policy.algorithms);
}

std::uint32_t allowed_protocols(const CommPolicy& policy) {
    return policy.protocols.empty()
               ? bit(Protocol::ll) | bit(Protocol::ll128) | bit(Protocol::simple)
               : bits(policy.protocols);
}

Result<CommPolicy> policy_of(std::string_view algorithms, std::string_view protocols,
                             std::string_view where) {
    CommPolicy out;
    auto algorithm_list = values_of<Algorithm>(algorithms, where, "algorithm");
    if (!algorithm_list) {
        return algorithm_list.error();
    }
    auto protocol_list = values_of<Protocol>(protocols, where, "protocol");
    if (!protocol_list) {
        return protocol_list.error();
    }
    if (algorithms.starts_with('^')) {
        // what is left are NCCL's own: an exclusion does not bring in those of others
        const std::uint32_t own = choices_of(CommLibrary::nccl);
        std::erase_if(*algorithm_list, [&](Algorithm a) { return (own & bit(a)) == 0; });
    }
    out.algorithms = std::move(*algorithm_list);
    out.protocols = std::move(*protocol_list);
    return out;
}

void describe(FieldVisitor& v, CommPolicy& x) {
    field(v, {"library", "library", "Who does the collectives."}, x.library);
    field(v,
          {"algorithms", "algorithms",
           "The only ones used, as NCCL_ALGO forces; empty: those the library chooses among."},
          x.algorithms);
    field(v,
          {"protocols", "protocols",
           "The only ones used, as NCCL_PROTO forces; empty: those the library chooses among."},
          x.protocols);
    field(v, {"servers", "servers", "Servers of algorithm parameter_server.", false, 1.0},
          x.servers);
}

} // namespace shardplan::sim
