#include "planner/analysis/sweep_fit.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "planner/analysis/kernels.hpp"
#include "simulator/io/apply_calibration.hpp"
#include "simulator/io/catalogue.hpp"

namespace shardplan::plan {
namespace {

sim::Device cpu() {
    const auto devices = sim::load_devices();
    return sim::find_device(*devices, "cpu-generic", "test")->value;
}

/// A machine with constants that nobody assumed.
sim::Device other_cpu() {
    sim::Device device = cpu();
    sim::ComputeProfile& c = device.compute;
    c.matrix_efficiency.value = 0.43;
    c.matrix_ramp.value = 6.0;
    c.kernel_time.value = 4e-7;
    c.memory_efficiency.value = 0.15;
    c.flash_2.forward_efficiency.value = 0.35;
    c.flash_2.backward_efficiency.value = 0.41;
    c.flash_2.exponential.value = 180.0;
    c.flash_2.edge.value = 45.0;
    c.operators->norm_forward.value = 11e9;
    c.operators->loss.value = 3e9;
    c.operators->sums.value = 27e9;
    c.operators->update.value = 14e9;
    return device;
}

sim::KernelRecord timed(sim::KernelRecord r, const sim::Device& device) {
    r.device = "cpu-generic";
    r.dtype = "fp32";
    r.scorable = true;
    r.tflops = 1.0;
    const KernelPrediction one = predict_kernel(r, device);
    r.tflops = one.measured_s / one.seconds;
    return r;
}

sim::KernelRecord product(std::int64_t m, std::int64_t n, std::int64_t k, bool adds,
                          const sim::Device& device) {
    sim::KernelRecord r;
    r.op = "gemm";
    r.m = m;
    r.n = n;
    r.k = k;
    r.out_dtype = "fp32";
    r.accumulate = adds;
    return timed(std::move(r), device);
}

sim::KernelRecord attention(const char* op, std::int64_t length, std::int64_t head,
                            const sim::Device& device) {
    sim::KernelRecord r;
    r.op = op;
    r.impl = "fa2";
    r.batch = 2;
    r.heads = r.kv_heads = 4;
    r.seq_q = r.seq_k = length;
    r.head_dim = head;
    r.causal = true;
    r.flops_counted = "causal-half";
    return timed(std::move(r), device);
}

sim::OperatorRecord operation(const char* op, double bytes, double seconds) {
    sim::OperatorRecord r;
    r.op = op;
    r.bytes = bytes;
    r.seconds = seconds;
    return r;
}

/// What a sweep without noise would say of a device.
sim::Sweep sweep_of(const sim::Device& device) {
    sim::Sweep out;
    out.machine.device = "cpu-generic";
    out.machine.cpu = "some";
    out.machine.ranks = 2;
    for (const std::int64_t n : {64, 128, 512, 1024}) {
        for (const std::int64_t k : {32, 64, 256, 1024}) {
            out.kernels.push_back(product(256, n, k, false, device));
            out.kernels.push_back(product(n, 256, k, true, device));
        }
    }
    for (const std::int64_t length : {64, 256, 1024}) {
        for (const std::int64_t head : {32, 64, 128}) {
            out.kernels.push_back(attention("attention_fwd", length, head, device));
            out.kernels.push_back(attention("attention_bwd", length, head, device));
        }
    }
    const sim::ComputeProfile& c = device.compute;
    const double call = c.kernel_time.value;
    out.operators.push_back(operation("launch", 0.0, call));
    for (const double bytes : {1e5, 1e6, 32e6}) {
        out.operators.push_back(
            operation("norm_fwd", bytes, call + bytes / c.operators->norm_forward.value));
        out.operators.push_back(
            operation("residual", bytes, call + bytes / c.operators->sums.value));
        out.operators.push_back(
            operation("update", bytes, call + bytes / c.operators->update.value));
        out.operators.push_back(operation(
            "copy", bytes,
            bytes / (device.memory_bandwidth.physical.value() * c.memory_efficiency.value)));
    }
    return out;
}

double found(const DeviceFit& fit, const std::string& name) {
    for (const FittedRate& rate : fit.rates) {
        if (rate.path == "device.compute." + name) return rate.after;
    }
    ADD_FAILURE() << name << " was not fitted";
    return 0.0;
}

TEST(DeviceFit, FindsTheConstantsThatMadeTheSamples) {
    const auto fit = fit_device(sweep_of(other_cpu()), cpu());
    ASSERT_TRUE(fit) << fit.error().what;
    const auto expect = [&](const char* name, double value, double tolerance) {
        EXPECT_NEAR(found(*fit, name) / value, 1.0, tolerance) << name;
    };
    expect("kernel_time", 4e-7, 1e-9);
    expect("memory_efficiency", 0.15, 1e-9);
    expect("matrix_efficiency", 0.43, 0.01);
    expect("matrix_ramp", 6.0, 0.1);
    expect("flash_2.forward_efficiency", 0.35, 0.02);
    expect("flash_2.backward_efficiency", 0.41, 0.02);
    expect("flash_2.exponential", 180.0, 0.05);
    expect("flash_2.edge", 45.0, 0.05);
    expect("operators.norm_forward", 11e9, 1e-6);
    expect("operators.sums", 27e9, 1e-6);
    expect("operators.update", 14e9, 1e-6);
    for (const FittedRate& rate : fit->rates) {
        EXPECT_LT(rate.residual, 0.02) << rate.path;
    }
    for (const SampleErrors& one : fit->errors) {
        EXPECT_LT(one.after.median, 0.02) << one.kind;
        EXPECT_LE(one.after.median, one.before.median + 1e-9) << one.kind;
    }
}

TEST(DeviceFit, TakesTheProductsOfTheHeadOutOfTheLoss) {
    const sim::Device device = other_cpu();
    sim::Sweep sweep = sweep_of(device);
    sim::OperatorRecord loss = operation("loss", 16.0 * 256 * 1024, 0.0);
    loss.rows = 256;
    loss.width = 1024;
    loss.hidden = 64;
    loss.chunk = 256;
    const sim::ComputeRates rates = bare_rates(device, sim::AttentionImpl::flash_2);
    const auto seconds = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        return gemm_seconds(rates, sim::Dtype::fp32, {m, n, k, 1}, 1, 4.0, 4.0);
    };
    loss.seconds = device.compute.kernel_time.value + *loss.bytes / 3e9 + seconds(256, 1024, 64) +
                   seconds(256, 64, 1024) + seconds(1024, 64, 256);
    sweep.operators.push_back(loss);
    const auto fit = fit_device(sweep, cpu());
    ASSERT_TRUE(fit);
    EXPECT_NEAR(found(*fit, "operators.loss") / 3e9, 1.0, 0.02);
}

TEST(DeviceFit, RaisesAPeakThatProductsExceed) {
    sim::Device fast = cpu();
    fast.peak_dense["fp32"] = sim::FlopRate(300e9);
    fast.compute.matrix_efficiency.value = 0.9;
    const auto fit = fit_device(sweep_of(fast), cpu());
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->rates.front().path, "device.peak_dense.fp32");
    const double peak = fit->rates.front().after;
    EXPECT_GT(peak, 200e9);
    EXPECT_NEAR(peak * found(*fit, "matrix_efficiency") / 270e9, 1.0, 0.02);
}

TEST(DeviceFit, SaysHowMuchFasterARankIsAlone) {
    sim::Sweep sweep = sweep_of(cpu());
    sweep.alone = {sweep.kernels.front()};
    sweep.alone.front().tflops = 1.8 * *sweep.alone.front().tflops;
    const auto fit = fit_device(sweep, cpu());
    ASSERT_TRUE(fit);
    EXPECT_NEAR(fit->alone, 1.8, 1e-9);
}

TEST(DeviceFit, RefusesTooFewProductsAndDevicesWithoutRatesOfOperators) {
    sim::Sweep few = sweep_of(cpu());
    few.kernels.resize(3);
    ASSERT_FALSE(fit_device(few, cpu()));
    sim::Device plain = cpu();
    plain.compute.operators.reset();
    const auto fit = fit_device(sweep_of(cpu()), plain);
    ASSERT_FALSE(fit);
    EXPECT_NE(fit.error().hint.find("operators"), std::string::npos);
}

TEST(SweepFit, HoldsForAsManyRanksAsWereMeasured) {
    const auto fits = fit_sweeps({sweep_of(other_cpu())});
    ASSERT_TRUE(fits) << fits.error().what;
    sim::Scenario scenario;
    scenario.devices = {cpu()};
    scenario.calibration = calibration_of(*fits, "test", "none");
    auto cluster = sim::load_cluster("local-cpu");
    ASSERT_TRUE(cluster);
    const auto at = [&](std::int64_t ranks) {
        sim::Scenario one = scenario;
        one.cluster = *sim::resize(cluster->value, ranks);
        const auto status = sim::apply_calibration(one);
        return status ? one.devices[0].compute.matrix_efficiency.value : -1.0;
    };
    EXPECT_NEAR(at(2), 0.43, 0.01);
    EXPECT_EQ(at(4), -1.0) << "nothing was measured with four";
    for (sim::CalibrationEntry& entry : scenario.calibration.entries) {
        entry.ranks = 0;
    }
    EXPECT_NEAR(at(4), 0.43, 0.01);
}

TEST(SweepFit, TellsOnHowManyProcessorsTheRanksComputed) {
    sim::Sweep sweep = sweep_of(cpu());
    const auto entry_of = [&] {
        const auto fits = fit_sweeps({sweep});
        EXPECT_TRUE(fits);
        const sim::Calibration file = calibration_of(*fits, "test", "none");
        const auto found =
            std::find_if(file.entries.begin(), file.entries.end(),
                         [](const auto& entry) { return sim::counts_processors(entry); });
        if (found == file.entries.end()) return -1.0;
        EXPECT_EQ(found->path, sweep.machine.nodes > 1 ? sim::cluster_processors_path
                                                       : sim::node_processors_path);
        return found->value;
    };
    EXPECT_EQ(entry_of(), -1.0) << "sweeps of before do not say";
    sweep.machine.processors = 2;
    EXPECT_EQ(entry_of(), 2.0);
    sweep.machine.nodes = 4; // virtual ones of one machine
    EXPECT_EQ(entry_of(), 2.0);
}

TEST(SweepFit, TwoSweepsWithAsManyRanksAreRefused) {
    const auto fits = fit_sweeps({sweep_of(cpu()), sweep_of(other_cpu())});
    ASSERT_FALSE(fits);
    EXPECT_NE(fits.error().what.find("as many ranks"), std::string::npos);
}

TEST(SweepFit, ADeviceTheCatalogueLacksIsRefused) {
    sim::Sweep sweep = sweep_of(cpu());
    sweep.machine.device = "cpu-generik";
    const auto fits = fit_sweeps({sweep});
    ASSERT_FALSE(fits);
    EXPECT_NE(fits.error().hint.find("cpu-generic"), std::string::npos);
}

} // namespace
} // namespace shardplan::plan
