#include "simulator/estimate/term.hpp"

#include <gtest/gtest.h>

namespace shardplan::test {
namespace {

using sim::Term;

Term tree() {
    sim::TermRecorder recorder("time", "step time", sim::Dimension::seconds);
    recorder.enter("gemm", "products", "time.gemm");
    recorder.leaf("qkv", "qkv", 1.0, "time.gemm", "2 x 0.5 s");
    recorder.leaf("mlp", "mlp", 2.0, "time.gemm", "");
    recorder.leave();
    recorder.enter("bubble", "waiting", "time.bubble");
    recorder.leaf("pipeline", "pipeline", 4.0, "time.bubble", "");
    recorder.leave();
    return recorder.take();
}

TEST(Term, IsTheSumOfItsChildren) {
    EXPECT_EQ(tree().value, 7.0);
    EXPECT_EQ(tree().children.at(0).value, 3.0);
    EXPECT_EQ(sum_of_leaves(tree()), 7.0);
}

TEST(Term, IsFoundByItsWholePathOrItsEnd) {
    const Term root = tree();
    ASSERT_NE(find_term(root, "time.gemm.qkv"), nullptr);
    EXPECT_EQ(find_term(root, "time.gemm.qkv")->detail, "2 x 0.5 s");
    EXPECT_EQ(find_term(root, "bubble.pipeline")->value, 4.0);
    EXPECT_EQ(find_term(root, "ipeline"), nullptr);
    EXPECT_EQ(find_term(root, "time"), &root);
}

TEST(Term, ListsItsPathsInOrder) {
    EXPECT_EQ(term_paths(tree()),
              (std::vector<std::string>{"time", "time.gemm", "time.gemm.qkv", "time.gemm.mlp",
                                        "time.bubble", "time.bubble.pipeline"}));
}

TEST(Term, ClosesWhatWasLeftOpen) {
    sim::TermRecorder recorder("memory", "memory", sim::Dimension::bytes);
    recorder.enter("weights", "weights", "mem.weights");
    recorder.leaf("table", "table", 8.0, "mem.weights", "");
    EXPECT_EQ(recorder.take().value, 8.0);
}

} // namespace
} // namespace shardplan::test
