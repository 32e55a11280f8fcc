#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "planner/analysis/kernels.hpp"
#include "planner/analysis/knob_search.hpp"
#include "planner/analysis/sweep_fit.hpp"
#include "simulator/units/in_quotes.hpp"

namespace shardplan::plan {
namespace {

using sim::Constant;
using sim::Device;
using sim::OperatorRecord;
using sim::Result;

/// A measured time, what it is of, and how it is predicted on a device.
struct Sample {
    std::string kind;
    double size = 0.0; ///< flops or bytes
    double seconds = 0.0;
    std::function<double(const Device&)> predict;
};

double log_error(const Sample& s, const Device& device) {
    return std::log(std::max(1e-12, s.predict(device)) / s.seconds);
}

/// Mean size of the logarithm of predicted over measured.
double misfit(const std::vector<const Sample*>& samples, const Device& device) {
    double sum = 0.0;
    for (const Sample* s : samples) {
        sum += std::abs(log_error(*s, device));
    }
    return sum / static_cast<double>(std::max<std::size_t>(1, samples.size()));
}

double residual_of(const std::vector<const Sample*>& samples, const Device& device) {
    std::vector<double> sizes;
    for (const Sample* s : samples) {
        sizes.push_back(std::abs(s->predict(device) / s->seconds - 1.0));
    }
    return median_of(sizes);
}

// --- samples ---------------------------------------------------------------------------------

void add_kernels(const std::vector<sim::KernelRecord>& records, const Device& device,
                 std::vector<Sample>& out) {
    for (const sim::KernelRecord& record : records) {
        const KernelPrediction known = predict_kernel(record, device);
        if (!known.skipped.empty() || known.measured_s <= 0.0) continue;
        out.push_back({record.op, *record.tflops * 1e12 * known.measured_s, known.measured_s,
                       [&record](const Device& d) { return predict_kernel(record, d).seconds; }});
    }
}

/// Which Constant an operator's time follows from.
struct OperatorOf {
    std::string_view op;
    std::string_view name; ///< in OperatorRates
    Constant sim::OperatorRates::*rate;
};

constexpr OperatorOf operators[] = {
    {"norm_fwd", "norm_forward", &sim::OperatorRates::norm_forward},
    {"norm_bwd", "norm_backward", &sim::OperatorRates::norm_backward},
    {"activation_fwd", "activation_forward", &sim::OperatorRates::activation_forward},
    {"activation_bwd", "activation_backward", &sim::OperatorRates::activation_backward},
    {"gate_fwd", "gate_forward", &sim::OperatorRates::gate_forward},
    {"gate_bwd", "gate_backward", &sim::OperatorRates::gate_backward},
    {"rope", "rope", &sim::OperatorRates::rope},
    {"loss", "loss", &sim::OperatorRates::loss},
    {"residual", "sums", &sim::OperatorRates::sums},
    {"bias_bwd", "sums", &sim::OperatorRates::sums},
    {"update", "update", &sim::OperatorRates::update},
};

/// The products a loss runs beside its softmax: logits, and both gradients, chunk by chunk.
double head_products(const OperatorRecord& r, const Device& device) {
    if (!r.hidden || !r.rows || !r.width) return 0.0;
    const sim::ComputeRates rates = bare_rates(device, sim::AttentionImpl::flash_2);
    const std::int64_t chunk = std::min(r.chunk.value_or(*r.rows), *r.rows);
    const auto chunks = static_cast<double>(*r.rows) / static_cast<double>(chunk);
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        return sim::gemm_seconds(rates, sim::Dtype::fp32, {m, n, k, 1}, 1, 4.0, 4.0);
    };
    return chunks * (product(chunk, *r.width, *r.hidden) + product(chunk, *r.hidden, *r.width) +
                     product(*r.width, *r.hidden, chunk));
}

void add_operators(const std::vector<OperatorRecord>& records, std::vector<Sample>& out) {
    for (const OperatorRecord& r : records) {
        if (r.seconds.value_or(0.0) <= 0.0) continue;
        if (r.op == "launch") {
            out.push_back({r.op, 0.0, *r.seconds,
                           [](const Device& d) { return d.compute.kernel_time.value; }});
            continue;
        }
        if (r.bytes.value_or(0.0) <= 0.0) continue;
        if (r.op == "copy") {
            out.push_back({r.op, *r.bytes, *r.seconds, [&r](const Device& d) {
                               return *r.bytes /
                                      bare_rates(d, sim::AttentionImpl::flash_2).memory_rate;
                           }});
            continue;
        }
        const auto* known = std::find_if(std::begin(operators), std::end(operators),
                                         [&](const OperatorOf& o) { return o.op == r.op; });
        if (known == std::end(operators)) continue;
        out.push_back({r.op, *r.bytes, *r.seconds, [&r, rate = known->rate](const Device& d) {
                           const double kernel = d.compute.kernel_time.value;
                           return kernel + head_products(r, d) +
                                  *r.bytes / ((*d.compute.operators).*rate).value;
                       }});
    }
}

// --- fits ------------------------------------------------------------------------------------

class Fit {
public:
    Fit(const sim::Sweep& sweep, const Device& device) : before_(device), device_(device) {
        add_kernels(sweep.kernels, device, samples_);
        add_operators(sweep.operators, samples_);
        for (const sim::KernelRecord& record : sweep.kernels) {
            if (record.op == "gemm" && record.tflops) {
                fastest_ = std::max(fastest_, *record.tflops * 1e12);
            }
        }
    }

    [[nodiscard]] std::vector<const Sample*> of(std::initializer_list<std::string_view> kinds,
                                                double least = 0.0) const {
        std::vector<const Sample*> out;
        for (const Sample& s : samples_) {
            const bool one = std::find(kinds.begin(), kinds.end(), s.kind) != kinds.end();
            if (one && s.size >= least) out.push_back(&s);
        }
        return out;
    }

    void run() {
        raise_peak();
        sim::ComputeProfile& c = device_.compute;
        set_direct("kernel_time", c.kernel_time, of({"launch"}),
                   [](const Sample& s) { return s.seconds; });
        fit_memory();
        fit_products();
        fit_attention();
        fit_operators();
    }

    DeviceFit result(const sim::Sweep& sweep) {
        out_.device = device_.name;
        std::vector<std::string> kinds;
        std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> errors;
        for (const Sample& s : samples_) {
            auto& [before, after] = errors[s.kind];
            if (after.empty()) kinds.push_back(s.kind);
            before.push_back(s.predict(before_) / s.seconds - 1.0);
            after.push_back(s.predict(device_) / s.seconds - 1.0);
        }
        for (const std::string& kind : kinds) {
            const auto& [before, after] = errors[kind];
            out_.errors.push_back({kind, error_figures(before), error_figures(after)});
        }
        out_.alone = alone_over_all(sweep);
        return std::move(out_);
    }

private:
    void note(std::string_view name, const Constant& now, double before,
              const std::vector<const Sample*>& samples) {
        const auto [least, most] =
            std::minmax_element(samples.begin(), samples.end(),
                                [](const Sample* a, const Sample* b) { return a->size < b->size; });
        out_.rates.push_back({"device.compute." + std::string(name), now.unit, before, now.value,
                              residual_of(samples, device_),
                              static_cast<std::int64_t>(samples.size()), (*least)->size,
                              (*most)->size});
    }

    /// The median of what single samples give.
    void set_direct(std::string_view name, Constant& constant,
                    const std::vector<const Sample*>& samples,
                    const std::function<double(const Sample&)>& value) {
        if (samples.empty()) return;
        std::vector<double> values;
        for (const Sample* s : samples) {
            values.push_back(value(*s));
        }
        const double before = constant.value;
        constant.value = median_of(values);
        note(name, constant, before, samples);
    }

    /// A sheet that products are faster than is wrong.
    void raise_peak() {
        const auto it = device_.peak_dense.find("fp32");
        const double sheet = it == device_.peak_dense.end() ? 0.0 : it->second.value();
        if (fastest_ <= sheet) return;
        device_.peak_dense["fp32"] = sim::FlopRate(fastest_);
        const auto products = of({"gemm"});
        out_.rates.push_back({"device.peak_dense.fp32", "flop/s", sheet, fastest_, 0.0,
                              static_cast<std::int64_t>(products.size()), 0.0, 0.0});
    }

    /// From copies too large for caches; from the largest where none is.
    void fit_memory() {
        constexpr double beyond_caches = 16e6;
        auto copies = of({"copy"}, beyond_caches);
        if (copies.empty()) {
            const auto all = of({"copy"});
            if (all.empty()) return;
            copies = {*std::max_element(
                all.begin(), all.end(),
                [](const Sample* a, const Sample* b) { return a->size < b->size; })};
        }
        const double sheet = device_.memory_bandwidth.physical.value();
        set_direct("memory_efficiency", device_.compute.memory_efficiency, copies,
                   [&](const Sample& s) { return std::min(1.0, s.size / s.seconds / sheet); });
    }

    Knob knob(std::string name, Constant& constant, double lo, double hi) {
        if (constant.value <= lo) constant.value = lo;
        return {std::move(name), {&constant}, lo, hi, constant.value, 0.0};
    }

    void fit_knobs(std::vector<Knob> knobs, const std::vector<const Sample*>& samples) {
        if (samples.empty()) return;
        search(knobs, [&] { return misfit(samples, device_); });
        for (const Knob& one : knobs) {
            note(one.name, *one.constants.front(), one.start, samples);
        }
    }

    void fit_products() {
        sim::ComputeProfile& c = device_.compute;
        fit_knobs({knob("matrix_efficiency", c.matrix_efficiency, 0.01, 1.0),
                   knob("matrix_ramp", c.matrix_ramp, 0.01, 256.0)},
                  of({"gemm"}));
    }

    void fit_attention() {
        sim::AttentionRate& a = device_.compute.flash_2;
        fit_knobs({knob("flash_2.forward_efficiency", a.forward_efficiency, 0.01, 1.0),
                   knob("flash_2.backward_efficiency", a.backward_efficiency, 0.01, 1.0),
                   knob("flash_2.exponential", a.exponential, 1.0, 10000.0),
                   knob("flash_2.edge", a.edge, 1.0, 1000.0)},
                  of({"attention_fwd", "attention_bwd"}));
    }

    void fit_operators() {
        sim::OperatorRates& rates = *device_.compute.operators;
        std::vector<std::string_view> done;
        for (const OperatorOf& o : operators) {
            if (std::find(done.begin(), done.end(), o.name) != done.end()) continue;
            done.push_back(o.name);
            std::vector<const Sample*> samples;
            for (const OperatorOf& same : operators) {
                if (same.name != o.name) continue;
                const auto more = of({same.op});
                samples.insert(samples.end(), more.begin(), more.end());
            }
            Constant& rate = rates.*(o.rate);
            // what the samples take beside their bytes is predicted with a rate without end
            const double before = rate.value;
            rate.value = 1e30;
            std::vector<double> found;
            for (const Sample* s : samples) {
                const double rest = s->seconds - s->predict(device_);
                if (rest > 0.0) found.push_back(s->size / rest);
            }
            rate.value = found.empty() ? before : median_of(found);
            if (!found.empty()) note("operators." + std::string(o.name), rate, before, samples);
        }
    }

    /// Over the shapes that were measured both ways.
    static double alone_over_all(const sim::Sweep& sweep) {
        std::vector<double> ratios;
        for (const sim::KernelRecord& one : sweep.alone) {
            for (const sim::KernelRecord& all : sweep.kernels) {
                const bool same = one.m == all.m && one.n == all.n && one.k == all.k &&
                                  one.stage == all.stage && all.tflops.value_or(0.0) > 0.0;
                if (same && one.tflops) ratios.push_back(*one.tflops / *all.tflops);
            }
        }
        return ratios.empty() ? 0.0 : median_of(ratios);
    }

    Device before_;
    Device device_;
    std::vector<Sample> samples_;
    double fastest_ = 0.0;
    DeviceFit out_;
};

} // namespace

Result<DeviceFit> fit_device(const sim::Sweep& sweep, const Device& device) {
    constexpr std::size_t fewest_products = 4;
    if (!device.compute.operators) {
        return sim::Error{sim::ErrorCode::bad_input, device.name,
                          "the device is described without rates of its operators",
                          "add \"operators\" to its architecture, as x86_64 has them"};
    }
    Fit fit(sweep, device);
    if (fit.of({"gemm"}).size() < fewest_products) {
        return sim::Error{sim::ErrorCode::bad_input,
                          "sweep with " + std::to_string(sweep.machine.ranks) + " ranks",
                          "there are fewer than four usable matrix products",
                          "measure again with more time"};
    }
    fit.run();
    return fit.result(sweep);
}

} // namespace shardplan::plan
