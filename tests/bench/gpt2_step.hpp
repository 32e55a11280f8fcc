#pragma once

#include <memory>
#include <vector>

#include "executor/model/model.hpp"
#include "executor/optimizer/data_parallel.hpp"
#include "executor/run/token_source.hpp"

namespace shardplan::test {

/// GPT-2 124M (Radford et al. 2019), without dropout.
sim::ModelSpec gpt2_124m();

/// That model on one rank with AdamW and made-up tokens, ready for training steps.
class Gpt2Step {
public:
    Gpt2Step(std::shared_ptr<exec::Kernels<float>> kernels, exec::Index samples,
             exec::Index sequence, exec::Storage storage);

    /// One training step of one micro-batch; false if it failed.
    bool run();
    [[nodiscard]] exec::Index tokens() const { return static_cast<exec::Index>(tokens_.size()); }

private:
    std::shared_ptr<exec::Kernels<float>> kernels_;
    std::unique_ptr<exec::Model<float>> model_;
    std::unique_ptr<exec::DataParallel<float>> optimizer_;
    exec::SampleStream stream_;
    std::vector<exec::Token> tokens_;
    std::vector<exec::Token> targets_;
};

} // namespace shardplan::test
