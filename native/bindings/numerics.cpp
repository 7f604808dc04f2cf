// Functions that sampling and scoring need, one array at a time.
#include <nanobind/stl/pair.h>

#include <stdexcept>
#include <utility>

#include "bindings/bindings.h"
#include "kernels/choose.h"
#include "numerics/float_mode.h"
#include "numerics/philox.h"

namespace cabochon {
namespace {

// Every instruction set gives the same bits, so the fastest serves.
const RowKernels& rows() { return available_kernels().front()->rows; }

NewArray<float> exp_f32(const Floats& x) {
  auto y = new_array<float>({x.shape(0)});
  const FloatMode mode;
  rows().exp(x.data(), static_cast<int64_t>(x.shape(0)), y.data());
  return y;
}

float log_sum_exp(const Floats& row) {
  if (row.shape(0) == 0) {
    throw nb::value_error("log_sum_exp: the row is empty");
  }
  const FloatMode mode;
  return rows().log_sum_exp(row.data(), static_cast<int64_t>(row.shape(0)));
}

std::pair<NewArray<int32_t>, NewArray<float>> top_k(const Floats& row, int64_t k) {
  const auto n = static_cast<int64_t>(row.shape(0));
  if (k < 1 || k > n || n > INT32_MAX) {
    throw nb::value_error("top_k: k must be between 1 and the length of the row");
  }
  auto ids = new_array<int32_t>({static_cast<size_t>(k)});
  auto values = new_array<float>({static_cast<size_t>(k)});
  const FloatMode mode;
  rows().top_k(row.data(), n, k, ids.data(), values.data());
  return {std::move(ids), std::move(values)};
}

}  // namespace

void bind_numerics(nb::module_& m) {
  m.def("exp_f32", &exp_f32, nb::arg("x").noconvert());
  m.def("log_sum_exp", &log_sum_exp, nb::arg("row").noconvert());
  m.def("top_k", &top_k, nb::arg("row").noconvert(), nb::arg("k"));
  m.def("philox_uniform", &philox_uniform, nb::arg("seed"), nb::arg("position"), nb::arg("choice"));
}

}  // namespace cabochon
