#include "planner/cli/child_process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace shardplan::plan::cli {
namespace {

namespace fs = std::filesystem;

volatile std::sig_atomic_t stops_asked = 0;

extern "C" void count_stop(int /*signal*/) {
    const int now = stops_asked;
    stops_asked = now + 1;
}

/// Counts SIGINT and SIGTERM in place of what they did before.
class StopSignals {
public:
    StopSignals() {
        stops_asked = 0;
        struct sigaction action {};
        action.sa_handler = count_stop; // without SA_RESTART: poll is to wake up
        ::sigemptyset(&action.sa_mask);
        ::sigaction(SIGINT, &action, &interrupt_);
        ::sigaction(SIGTERM, &action, &terminate_);
    }
    ~StopSignals() {
        ::sigaction(SIGINT, &interrupt_, nullptr);
        ::sigaction(SIGTERM, &terminate_, nullptr);
    }
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    /// Passes on what came since the last call.
    void hand_on(pid_t child) {
        while (handed_ < stops_asked) {
            ++handed_;
            ::kill(child, handed_ == 1 ? SIGUSR1 : handed_ == 2 ? SIGTERM : SIGKILL);
        }
    }
    [[nodiscard]] bool any() const { return stops_asked > 0; }

private:
    struct sigaction interrupt_ {};
    struct sigaction terminate_ {};
    int handed_ = 0;
};

/// Both ends of a pipe; those still open are closed at the end.
struct Pipe {
    std::array<int, 2> ends = {-1, -1};
    Pipe() = default;
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    ~Pipe() {
        close(0);
        close(1);
    }
    bool open() { return ::pipe2(ends.data(), O_CLOEXEC) == 0; }
    void close(std::size_t end) {
        if (ends[end] >= 0) ::close(ends[end]);
        ends[end] = -1;
    }
};

/// What comes out of one pipe, cut into lines.
class LineReader {
public:
    LineReader(Pipe& pipe, const std::function<void(const std::string&)>& take)
        : pipe_(pipe), take_(take) {}

    [[nodiscard]] bool open() const { return pipe_.ends[0] >= 0; }
    [[nodiscard]] int number() const { return pipe_.ends[0]; }

    void read() {
        std::array<char, 4096> buffer{};
        const ssize_t count = ::read(pipe_.ends[0], buffer.data(), buffer.size());
        if (count < 0 && errno == EINTR) return;
        if (count <= 0) {
            if (!rest_.empty()) give();
            pipe_.close(0);
            return;
        }
        for (const char c : std::string_view(buffer.data(), static_cast<std::size_t>(count))) {
            if (c == '\n') {
                give();
            } else {
                rest_ += c;
            }
        }
    }

private:
    void give() {
        if (take_) take_(rest_);
        rest_.clear();
    }

    Pipe& pipe_;
    const std::function<void(const std::string&)>& take_;
    std::string rest_;
};

sim::Error cannot_start(const std::string& program, int reason) {
    return {sim::ErrorCode::backend_failed, program,
            std::string("it cannot be started: ") + std::strerror(reason),
            "see whether the file exists and may be executed"};
}

/// In the child: everything up to the program itself. Tells `failure` why it could not start.
[[noreturn]] void become(const std::string& program, std::vector<char*>& words, int out, int err,
                         int failure) {
    // A terminal sends Ctrl-C to a whole group of processes; only the parent is to get it.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::execvp(program.c_str(), words.data());
    const int reason = errno;
    if (::write(failure, &reason, sizeof reason) < 0) ::_exit(126);
    ::_exit(127);
}

ChildEnd wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    ChildEnd end;
    if (WIFSIGNALED(status)) {
        end.signal = WTERMSIG(status);
    } else {
        end.code = WEXITSTATUS(status);
    }
    return end;
}

} // namespace

sim::Result<ChildEnd> run_child(const std::string& program, const std::vector<std::string>& words,
                                const ChildLines& lines) {
    Pipe out;
    Pipe err;
    Pipe failure;
    if (!out.open() || !err.open() || !failure.open()) return cannot_start(program, errno);
    std::vector<std::string> copies = {program};
    copies.insert(copies.end(), words.begin(), words.end());
    std::vector<char*> arguments;
    for (std::string& word : copies) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    StopSignals signals;
    const pid_t child = ::fork();
    if (child < 0) return cannot_start(program, errno);
    if (child == 0) become(program, arguments, out.ends[1], err.ends[1], failure.ends[1]);
    out.close(1);
    err.close(1);
    failure.close(1);
    LineReader from_out(out, lines.out);
    LineReader from_err(err, lines.err);
    while (from_out.open() || from_err.open()) {
        signals.hand_on(child);
        std::array<pollfd, 2> waiting = {pollfd{from_out.number(), POLLIN, 0},
                                         pollfd{from_err.number(), POLLIN, 0}};
        // A signal that comes between hand_on and here is noticed at the latest after this long.
        constexpr int milliseconds = 200;
        if (::poll(waiting.data(), waiting.size(), milliseconds) <= 0) continue;
        if (waiting[0].revents != 0) from_out.read();
        if (waiting[1].revents != 0) from_err.read();
    }
    int reason = 0;
    const bool failed = ::read(failure.ends[0], &reason, sizeof reason) == sizeof reason;
    ChildEnd end = wait_for(child);
    if (failed) return cannot_start(program, reason);
    end.asked_to_stop = signals.any();
    return end;
}

std::string find_in_path(const std::string& name) {
    const char* path = std::getenv("PATH");
    std::string_view rest = path == nullptr ? "" : path;
    while (!rest.empty()) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
        const std::string candidate = std::string(folder.empty() ? "." : folder) + "/" + name;
        if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return "";
}

sim::Result<std::string> find_program_of_ours(const std::string& name) {
    std::error_code error;
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    if (!error) {
        const std::string beside = (self.parent_path() / name).string();
        if (::access(beside.c_str(), X_OK) == 0) return beside;
    }
    if (std::string found = find_in_path(name); !found.empty()) return found;
    return sim::Error{sim::ErrorCode::not_found, name,
                      "the program lies neither beside shardplan nor in PATH",
                      "build the target " + name + " (it needs libeigen3-dev), or extend PATH"};
}

} // namespace shardplan::plan::cli
