#pragma once

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "planner/import/build_cluster.hpp"
#include "planner/import/readers.hpp"
#include "planner/import/recognise.hpp"
#include "simulator/io/catalogue.hpp"
#include "simulator/io/file.hpp"

namespace shardplan::plan::test {

/// The text of a sample in tests/data/inputs.
inline std::string sample(const std::string& file) {
    const auto text = sim::read_file(SHARDPLAN_SOURCE_DIR "/tests/data/inputs/" + file);
    EXPECT_TRUE(text) << file;
    return text ? *text : std::string();
}

/// The text as the format it is recognised by; an empty answer, which fails the test, if by none.
inline ForeignCluster read_any(const std::string& text) {
    const ForeignFormat* format = recognise(text);
    EXPECT_NE(format, nullptr) << text;
    if (format == nullptr) {
        return {};
    }
    auto file = read_foreign(*format, text, "input");
    EXPECT_TRUE(file) << sim::to_text(file.error());
    return file ? *file : ForeignCluster();
}

/// What a person adds, with the built-in devices.
inline ImportHelp help_with(const std::string& device = "", const std::string& node = "") {
    ImportHelp help;
    help.device = device;
    if (auto devices = sim::load_devices()) {
        help.catalogue = std::move(*devices);
    }
    if (!node.empty()) {
        if (auto cluster = sim::load_cluster(node)) {
            help.node = std::move(cluster->value);
        }
    }
    return help;
}

/// The same, diagnosed.
inline ForeignCluster diagnosed(const std::string& text, const ImportHelp& help = help_with(),
                                const std::vector<std::string>* inventory = nullptr) {
    ForeignCluster file = read_any(text);
    diagnose(file, help, inventory);
    return file;
}

/// Whether a diagnosis of this kind says `words`.
inline bool finds(const ForeignCluster& file, const std::string& kind,
                  const std::string& words = "") {
    return std::any_of(file.diagnoses.begin(), file.diagnoses.end(), [&](const Diagnosis& one) {
        return one.kind == kind && one.what.find(words) != std::string::npos;
    });
}

/// The line of the first diagnosis of a kind; -1: there is none.
inline std::int64_t line_of(const ForeignCluster& file, const std::string& kind) {
    for (const Diagnosis& one : file.diagnoses) {
        if (one.kind == kind) {
            return one.line;
        }
    }
    return -1;
}

/// Whether a piece with `words` was lost in a line.
inline bool loses(const ForeignCluster& file, std::int64_t line, const std::string& words) {
    return std::any_of(file.lost.begin(), file.lost.end(), [&](const LostPiece& piece) {
        return piece.line == line && piece.what.find(words) != std::string::npos;
    });
}

} // namespace shardplan::plan::test
