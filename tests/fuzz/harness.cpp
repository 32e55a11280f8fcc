#include "tests/fuzz/harness.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string_view>

#include <unistd.h>

namespace shardplan::fuzz {
namespace {

/// The input at work, for the signal handler.
const std::string* current = nullptr;

void on_signal(int signal) {
    const char* what = signal == SIGALRM ? "\nno answer within 20 s to:\n" : "\ncrashed on:\n";
    if (::write(2, what, std::strlen(what)) >= 0 && current != nullptr) {
        [[maybe_unused]] const auto n = ::write(2, current->data(), current->size());
    }
    ::_exit(1);
}

/// Values that readers stumble over.
constexpr std::array<std::string_view, 31> nasty = {"0",
                                                    "-1",
                                                    "1",
                                                    "-0",
                                                    "1e308",
                                                    "1e999",
                                                    "-1e308",
                                                    "1e-320",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "9223372036854775808",
                                                    "4294967296",
                                                    "65536",
                                                    "2147483647",
                                                    "0.5",
                                                    "null",
                                                    "true",
                                                    "false",
                                                    "NaN",
                                                    "\"\"",
                                                    "\"x\"",
                                                    "[]",
                                                    "{}",
                                                    "[[]]",
                                                    "\"80 GiB\"",
                                                    "\"-3 s\"",
                                                    "\"1e400 B\"",
                                                    "\"0\"",
                                                    "\"\\u0000\"",
                                                    "3.0000000001",
                                                    "1000000"};
constexpr std::string_view signs = "{}[]\",:=-+.*/\\%#0123456789eEaztx \n\t\r";

class Mutator {
public:
    explicit Mutator(std::uint64_t seed) : random_(seed) {}

    std::string operator()(const std::string& text, const std::string& other) {
        std::string out = text;
        const int steps = 1 + below(2);
        for (int i = 0; i < steps; ++i) {
            step(out, other);
        }
        return out;
    }

    int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

private:
    std::size_t place(const std::string& text) {
        return static_cast<std::size_t>(random_() % (text.size() + 1));
    }
    std::size_t length(std::size_t most) {
        return most == 0 ? 0
                         : static_cast<std::size_t>(random_() % std::min<std::size_t>(most, 64));
    }

    /// Replaces the number, word or text around a random place by a nasty value.
    void replace_value(std::string& text) {
        constexpr std::string_view ends = ",:{}[]\n";
        std::size_t at = place(text);
        while (at > 0 && ends.find(text[at - 1]) == std::string_view::npos) {
            --at;
        }
        const std::size_t end = std::min(text.find_first_of(ends, at), text.size());
        text.replace(at, end - at, nasty[static_cast<std::size_t>(below(nasty.size()))]);
    }

    /// Replaces the digits at or behind a random place by another number, so that the text stays
    /// well formed and the value is what is wrong.
    void change_number(std::string& text) {
        constexpr std::string_view digits = "0123456789";
        const std::size_t at = text.find_first_of(digits, place(text));
        if (at == std::string::npos) {
            return;
        }
        const std::size_t end = std::min(text.find_first_not_of(digits, at), text.size());
        const long long old =
            std::atoll(text.substr(at, std::min<std::size_t>(end - at, 15)).c_str());
        const std::array<long long, 14> values = {
            0,       1,       2,         3,          old * 2,    old + 1,      old / 2,
            1000000, 1 << 16, 100000007, 2147483647, 4294967296, 999999999999, 1000000000000000000};
        text.replace(at, end - at, std::to_string(values[static_cast<std::size_t>(below(14))]));
    }

    void step(std::string& text, const std::string& other) {
        const std::size_t at = place(text);
        const std::size_t rest = text.size() - at;
        switch (below(16)) {
            case 0: // another byte
                if (rest > 0) {
                    text[at] = static_cast<char>(random_() % 256);
                }
                return;
            case 1: // another sign of the language
                text.insert(at, 1, signs[static_cast<std::size_t>(below(signs.size()))]);
                return;
            case 2:
                text.erase(at, length(rest));
                return;
            case 3:
                text.insert(at, text.substr(at, length(rest)));
                return;
            case 4: { // a piece of another input
                const std::size_t from = place(other);
                text.insert(at, other.substr(from, length(other.size() - from)));
                return;
            }
            case 5: // the end is missing
                if (below(8) == 0) {
                    text.resize(at);
                }
                return;
            case 6:
            case 7:
            case 8:
            case 9:
            case 10:
            case 11:
                change_number(text);
                return;
            case 12:
                text.insert(at, std::string(static_cast<std::size_t>(below(200)), '['));
                return;
            default:
                replace_value(text);
                return;
        }
    }

    std::mt19937_64 random_;
};

/// Why an outcome is not in order; empty: it is.
std::string complaint(const Outcome& outcome) {
    if (outcome.code < 0 || outcome.code > 2) {
        return "exit code " + std::to_string(outcome.code);
    }
    if (outcome.code != 2) {
        return "";
    }
    const std::size_t error = outcome.err.find("error: ");
    const std::size_t hint = outcome.err.find("\nhint: ", error == std::string::npos ? 0 : error);
    if (error == std::string::npos || hint == std::string::npos) {
        return "an error without a hint: " + outcome.err;
    }
    const std::string line = outcome.err.substr(error + 7, hint - error - 7);
    const std::size_t colon = line.find(": ");
    const bool has_hint = hint + 7 < outcome.err.size() && outcome.err[hint + 7] != '\n';
    if (colon == std::string::npos || colon == 0 || colon + 2 >= line.size() || !has_hint) {
        return "an error that does not say where, what and what to do: " + outcome.err;
    }
    return "";
}

int run_target(const Target& target, int rounds) {
    int bad = 0;
    std::array<int, 3> codes{};
    const auto start = std::chrono::steady_clock::now();
    const auto judge = [&](const std::string& text, bool good) {
        current = &text;
        ::alarm(20);
        const Outcome outcome = target.read(text);
        ::alarm(0);
        std::string why = complaint(outcome);
        if (good && outcome.code == 2) {
            why = "good input is refused: " + outcome.err;
        }
        if (!why.empty()) {
            ++bad;
            if (bad <= 5) {
                std::fprintf(stderr, "%s: %s\ninput:\n%s\n", target.name.c_str(), why.c_str(),
                             text.substr(0, 4000).c_str());
            }
        } else {
            ++codes[static_cast<std::size_t>(outcome.code)];
        }
    };
    for (const std::string& seed : target.seeds) {
        judge(seed, true);
    }
    Mutator mutate(0x5eed);
    const auto count = static_cast<int>(target.seeds.size());
    for (int i = 0; i < rounds; ++i) {
        const std::string& seed = target.seeds[static_cast<std::size_t>(mutate.below(count))];
        const std::string& other = target.seeds[static_cast<std::size_t>(mutate.below(count))];
        judge(mutate(seed, other), false);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::printf("%-14s %d mutations in %.1f s: %d yes, %d no, %d refused, %d not in order\n",
                target.name.c_str(), rounds, spent.count(), codes[0], codes[1], codes[2], bad);
    std::fflush(stdout);
    return bad;
}

} // namespace

int run(const std::vector<Target>& targets, int rounds) {
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS, SIGALRM}) {
        std::signal(signal, on_signal);
    }
    if (const char* given = std::getenv("SHARDPLAN_FUZZ_ROUNDS")) {
        rounds = std::max(1, std::atoi(given));
    }
    int bad = 0;
    for (const Target& target : targets) {
        if (target.seeds.empty()) {
            std::fprintf(stderr, "%s: there is no good input to begin with\n", target.name.c_str());
            ++bad;
            continue;
        }
        bad += run_target(target, rounds);
    }
    return bad == 0 ? 0 : 1;
}

std::string tree_file(const std::string& path) {
    std::ifstream in(SHARDPLAN_SOURCE_DIR "/" + path);
    if (!in) {
        std::fprintf(stderr, "there is no %s\n", path.c_str());
        std::exit(1);
    }
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

std::vector<std::string> tree_files(const std::string& folder, const std::string& ending,
                                    std::size_t most) {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(SHARDPLAN_SOURCE_DIR "/" + folder)) {
        const std::string name = entry.path().filename().string();
        if (name.size() > ending.size() &&
            name.compare(name.size() - ending.size(), ending.size(), ending) == 0) {
            names.push_back(name);
        }
    }
    std::sort(names.begin(), names.end());
    names.resize(std::min(names.size(), most));
    std::vector<std::string> out;
    for (const std::string& name : names) {
        out.push_back(tree_file(folder + "/" + name));
    }
    return out;
}

std::string as_file(const std::string& text, const std::string& ending) {
    static const std::string stem =
        (std::filesystem::temp_directory_path() / ("shardplan-fuzz-" + std::to_string(::getpid())))
            .string();
    const std::string path = stem + ending;
    std::ofstream(path, std::ios::binary) << text;
    return path;
}

} // namespace shardplan::fuzz
