#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h> // getpid

#include "planner/cli/verbs.hpp"
#include "simulator/io/json.hpp"

namespace shardplan::test {

/// What a verb wrote and returned.
struct Answer {
    int code = -1;
    std::string out;
    std::string err;
};

struct How {
    bool json = false;
    bool exit_zero = false;
    bool color = false;
};

/// Runs a verb in this process.
template <class Verb, class Options>
Answer run_verb(Verb verb, const Options& options, How how = {}) {
    std::ostringstream out;
    std::ostringstream err;
    const plan::cli::Console console{out, err, how.color, how.json, how.exit_zero};
    Answer answer;
    answer.code = verb(options, console);
    answer.out = out.str();
    answer.err = err.str();
    return answer;
}

/// A file of this test, gone when the object is.
class TemporaryFile {
public:
    TemporaryFile(const std::string& name, const std::string& text)
        : path_((std::filesystem::temp_directory_path() /
                 (std::to_string(static_cast<long>(::getpid())) + "-" + name))
                    .string()) {
        std::ofstream(path_) << text;
    }
    ~TemporaryFile() {
        std::error_code error;
        std::filesystem::remove(path_, error);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// Llama-3-8B on two nodes of H100, small enough for every verb.
inline plan::cli::ScenarioOptions small_scenario(const char* tokens = "") {
    plan::cli::ScenarioOptions options;
    options.model = "llama-3-8b";
    options.cluster = "dgx-h100";
    options.gpus = 16;
    options.stack = "megatron-core";
    options.job_fields = {{"--global-batch", "global_batch.sequences", "64"},
                          {"--sequence", "sequence.max", "4096"}};
    if (*tokens != '\0') {
        options.job_fields.push_back({"--tokens", "tokens_to_train", tokens});
    }
    return options;
}

/// What a verb wrote, as JSON; an empty object if it is none, which fails the test.
inline sim::JsonValue parsed(const std::string& text) {
    auto json = sim::JsonValue::parse(text, "output");
    EXPECT_TRUE(json) << text;
    return json ? *json : *sim::JsonValue::parse("{}", "empty");
}

} // namespace shardplan::test
