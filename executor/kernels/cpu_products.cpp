#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/eigen.hpp"

namespace shardplan::exec {

namespace {

/// Rows or columns of C per border between threads: a multiple of every register block of Eigen's.
constexpr Index border = 48;
/// Products of two elements that a thread adds up in the time of one operation on an element.
constexpr Index products_per_operation = 16;

/// The part of C with rows [row, row + rows) and columns [column, column + columns).
struct Part {
    Index row = 0, rows = 0, column = 0, columns = 0;
};

template <class A, class B, class C>
void store(const A& a, const B& b, C&& c, bool accumulate) {
    if (accumulate) {
        c.noalias() += a * b;
    } else {
        c.noalias() = a * b;
    }
}

template <class Scalar>
void part_of_product(ProductForm form, const ProductShape& s, const Part& p, const Scalar* a,
                     const Scalar* b, Scalar* c, bool accumulate) {
    auto out = matrix(c + p.row * s.n + p.column, p.rows, p.columns, s.n);
    switch (form) {
        case ProductForm::nn:
            store(matrix(a + p.row * s.k, p.rows, s.k, s.k),
                  matrix(b + p.column, s.k, p.columns, s.n), out, accumulate);
            return;
        case ProductForm::nt:
            store(matrix(a + p.row * s.k, p.rows, s.k, s.k),
                  matrix(b + p.column * s.k, p.columns, s.k, s.k).transpose(), out, accumulate);
            return;
        case ProductForm::tn:
            store(matrix(a + p.row, s.k, p.rows, s.m).transpose(),
                  matrix(b + p.column, s.k, p.columns, s.n), out, accumulate);
            return;
    }
}

} // namespace

template <class Scalar>
void CpuKernels<Scalar>::product(ProductForm form, ProductShape s, const Scalar* a, const Scalar* b,
                                 Scalar* c, bool accumulate) {
    if (s.m == 0 || s.n == 0) return;
    const bool by_rows = s.m >= s.n;
    pool_->ranges(by_rows ? s.m : s.n, border, s.m * s.n * s.k / products_per_operation,
                  [&](Index begin, Index end) {
                      const Part part = by_rows ? Part{begin, end - begin, 0, s.n}
                                                : Part{0, s.m, begin, end - begin};
                      part_of_product(form, s, part, a, b, c, accumulate);
                  });
}

template <class Scalar>
void CpuKernels<Scalar>::grouped_product(ProductForm form, std::span<const Index> offsets,
                                         ProductShape shape, const Scalar* a, const Scalar* b,
                                         Scalar* c, bool accumulate) {
    const bool weights_out = form == ProductForm::tn;
    for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
        const Index first = offsets[e];
        const Index rows = offsets[e + 1] - first;
        const auto expert = static_cast<Index>(e);
        ProductShape s = shape;
        (weights_out ? s.k : s.m) = rows;
        const Scalar* a_e = a + first * (weights_out ? s.m : s.k);
        const Scalar* b_e = b + (weights_out ? first * s.n : expert * s.n * s.k);
        Scalar* c_e = c + (weights_out ? expert * s.m * s.n : first * s.n);
        if (rows > 0) {
            product(form, s, a_e, b_e, c_e, accumulate);
        } else if (weights_out && !accumulate) {
            array(c_e, s.m * s.n).setZero();
        }
    }
}

#define SHARDPLAN_INSTANTIATE(S)                                                                   \
    template void CpuKernels<S>::product(ProductForm, ProductShape, const S*, const S*, S*, bool); \
    template void CpuKernels<S>::grouped_product(ProductForm, std::span<const Index>,              \
                                                 ProductShape, const S*, const S*, S*, bool);
SHARDPLAN_INSTANTIATE(float)
SHARDPLAN_INSTANTIATE(double)
#undef SHARDPLAN_INSTANTIATE

} // namespace shardplan::exec
