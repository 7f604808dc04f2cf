// The part of `_native.check` about weights: packing and matrix products, beside their scalar reference.
#include "reference/linear.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "kernels/choose.h"
#include "memory/memory.h"
#include "numerics/float_mode.h"
#include "program/rough_activations.h"
#include "weights/packed.h"

namespace cabochon {
namespace {

using Bytes = Array<uint8_t, 1>;

const Kernels& kernels(const std::string& isa) {
  for (const Kernels* k : available_kernels()) {
    if (isa == k->name) {
      return *k;
    }
  }
  throw nb::value_error("no such instruction set");
}

// A matrix as the file holds it.
struct Matrix {
  Format format;
  int64_t rows, cols;
  const uint8_t* file;

  size_t row_bytes() const { return file_row_bytes(format, cols); }
  size_t group_bytes() const { return packed_group_bytes(format, cols); }
  int64_t groups() const { return (rows + kLanes - 1) / kLanes; }
};

Matrix matrix(int32_t format, int64_t rows, int64_t cols, const Bytes& file) {
  const Matrix m{static_cast<Format>(format), rows, cols, file.data()};
  if (rows < 1 || m.row_bytes() == 0 || file.shape(0) != static_cast<size_t>(rows) * m.row_bytes()) {
    throw nb::value_error("the bytes are not those of such a matrix");
  }
  return m;
}

struct Packed {
  Memory memory;
  PackedWeight weight;

  explicit Packed(const Matrix& m)
      : memory(static_cast<size_t>(m.groups()) * m.group_bytes(), true),
        weight{m.format, m.rows, m.cols, m.group_bytes(), memory.data()} {
    for (int64_t g = 0; g < m.groups(); ++g) {
      pack_group(m.format, m.file + static_cast<size_t>(g * kLanes) * m.row_bytes(),
                 std::min<int64_t>(kLanes, m.rows - g * kLanes), m.cols,
                 memory.data() + static_cast<size_t>(g) * m.group_bytes());
    }
  }
};

struct Quantized {
  Memory q, scales, sums;

  Quantized(const LinearKernels& k, const float* x, int64_t rows, int64_t cols, bool two_terms)
      : q(static_cast<size_t>(2 * rows * cols)),
        scales(static_cast<size_t>(rows * cols / kBlock) * sizeof(ActivationScale)),
        sums(static_cast<size_t>(rows * cols / 16) * sizeof(int32_t)) {
    for (int64_t t = 0; t < rows; ++t) {
      k.quantize_row(x + t * cols, cols, two_terms, q.data() + 2 * t * cols,
                     scales.as<ActivationScale>() + t * (cols / kBlock), sums.as<int32_t>() + t * (cols / 16));
    }
  }
  QuantizedRows rows() const { return {q.data(), scales.as<ActivationScale>(), sums.as<int32_t>()}; }
};

// The product of one group of 16 outputs with all rows of x, for quantised and float weights alike.
class Product {
 public:
  Product(const LinearKernels& k, const PackedWeight& w, const float* x, int64_t rows, bool two_terms)
      : k_(k),
        w_(w),
        x_(x),
        rows_(rows),
        two_terms_(two_terms),
        quantized_(k, x, is_quantized(w.format) ? rows : 0, w.cols, two_terms),
        scratch_(static_cast<size_t>(k.linear_scratch_bytes(w.cols))) {}

  void group(int64_t g, float* y, int64_t y_stride) const {
    if (is_quantized(w_.format)) {
      k_.linear_group(w_, g, quantized_.rows(), rows_, two_terms_, y, y_stride, scratch_.data());
    } else {
      k_.linear_group_float(w_, g, x_, w_.cols, rows_, y, y_stride);
    }
  }

 private:
  const LinearKernels& k_;
  const PackedWeight& w_;
  const float* x_;
  int64_t rows_;
  bool two_terms_;
  Quantized quantized_;
  Memory scratch_;
};

// y [tokens, rows] of x [tokens, cols]. A kernel that writes beyond its outputs is a RuntimeError.
NewArray<float> linear(const std::string& isa, int32_t format, int64_t rows, const Bytes& file, const Floats2& x,
                       bool two_terms) {
  const auto tokens = static_cast<int64_t>(x.shape(0)), cols = static_cast<int64_t>(x.shape(1));
  const Matrix m = matrix(format, rows, cols, file);
  auto y = new_array<float>({x.shape(0), static_cast<size_t>(rows)});
  const FloatMode mode;
  if (isa == "reference") {
    reference::linear(m.format, file.data(), rows, cols, x.data(), tokens, two_terms, y.data());
    return y;
  }
  constexpr float kUntouched = 12345.0f;
  const int64_t stride = rows + 3;
  std::vector<float> out(static_cast<size_t>(tokens * stride), kUntouched);
  const Packed packed(m);
  const Product product(kernels(isa).linear, packed.weight, x.data(), tokens, two_terms);
  for (int64_t g = 0; g < m.groups(); ++g) {
    product.group(g, out.data() + g * kLanes, stride);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const float* row = out.data() + t * stride;
    std::copy(row, row + rows, y.data() + t * rows);
    if (std::any_of(row + rows, row + stride, [](float v) { return v != kUntouched; })) {
      throw std::runtime_error("a matrix product wrote beyond its outputs");
    }
  }
  return y;
}

// What no product of a group of 16 outputs and a row of x [tokens, cols] is above: [tokens, groups]; and the norms that
// this was found with [groups, cols / 32].
std::pair<NewArray<float>, NewArray<float>> rough(const std::string& isa, int32_t format, int64_t rows,
                                                  const Bytes& file, const Floats2& x, bool two_terms) {
  const auto tokens = static_cast<int64_t>(x.shape(0)), cols = static_cast<int64_t>(x.shape(1));
  const Matrix m = matrix(format, rows, cols, file);
  if (!is_quantized(m.format) || tokens > kRoughRows) {
    throw nb::value_error("such products are not found roughly");
  }
  const BestKernels& k = kernels(isa).best;
  const auto groups = static_cast<size_t>(m.groups()), blocks = static_cast<size_t>(cols / kBlock);
  auto norms = new_array<float>({groups, blocks});
  auto bounds = new_array<float>({x.shape(0), groups});
  const FloatMode mode;
  const Packed packed(m);
  RoughActivations rough(cols, two_terms);
  for (int64_t t = 0; t < tokens; ++t) {
    rough.quantize(t, x.data() + t * cols, cols);
  }
  for (size_t g = 0; g < groups; ++g) {
    float of_group[kRoughRows];
    k.block_norms(packed.weight, static_cast<int64_t>(g), norms.data() + g * blocks);
    k.rough_group(packed.weight, static_cast<int64_t>(g), norms.data() + g * blocks, rough.rows(), tokens, of_group);
    for (int64_t t = 0; t < tokens; ++t) {
      bounds.data()[static_cast<size_t>(t) * groups + g] = of_group[t];
    }
  }
  return {std::move(bounds), std::move(norms)};
}

// Scales [cols / 32] and half block sums [cols / 16] of one row of activations.
std::pair<NewArray<float>, NewArray<int32_t>> quantize(const std::string& isa, const Floats& x, bool two_terms) {
  const auto cols = static_cast<int64_t>(x.shape(0));
  if (cols % kBlock != 0) {
    throw nb::value_error("the row must hold whole blocks of 32");
  }
  auto scales = new_array<float>({static_cast<size_t>(cols / kBlock)});
  auto sums = new_array<int32_t>({static_cast<size_t>(cols / 16)});
  const FloatMode mode;
  if (isa == "reference") {
    std::vector<int32_t> q(static_cast<size_t>(cols));
    reference::quantize_row(x.data(), cols, two_terms, q.data(), scales.data(), sums.data());
  } else {
    std::vector<uint8_t> q(static_cast<size_t>(2 * cols));
    std::vector<ActivationScale> s(scales.size());
    kernels(isa).linear.quantize_row(x.data(), cols, two_terms, q.data(), s.data(), sums.data());
    std::transform(s.begin(), s.end(), scales.data(), [](const ActivationScale& a) { return a.scale; });
  }
  return {std::move(scales), std::move(sums)};
}

// Every row of a matrix, dequantised, times `scale`.
NewArray<float> dequantize(const std::string& isa, int32_t format, int64_t rows, int64_t cols, const Bytes& file,
                           float scale) {
  const Matrix m = matrix(format, rows, cols, file);
  auto out = new_array<float>({static_cast<size_t>(rows), static_cast<size_t>(cols)});
  const FloatMode mode;
  if (isa == "reference") {
    for (int64_t n = 0; n < rows; ++n) {
      reference::dequantize_row(m.format, m.file + static_cast<size_t>(n) * m.row_bytes(), cols, scale,
                                out.data() + n * cols);
    }
  } else {
    const Packed packed(m);
    for (int64_t n = 0; n < rows; ++n) {
      kernels(isa).linear.dequantize_row(packed.weight, n, scale, out.data() + n * cols);
    }
  }
  return out;
}

// ---- Speed ------------------------------------------------------------------------------------------------------

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Best time of several short runs of `step(i)`, which does the same amount of work for every i.
template <typename Step>
double best_seconds(double budget, Step step) {
  double best = std::numeric_limits<double>::infinity();
  const double end = now() + budget;
  for (int64_t i = 0; i < 5 || now() < end; ++i) {
    const double start = now();
    step(i);
    best = std::min(best, now() - start);
  }
  return best;
}

// Outputs per second of one thread's matrix product with a matrix of zeros, walking through all its rows.
double outputs_per_second(const std::string& isa, int32_t format, int64_t rows, int64_t cols, int64_t tokens,
                          bool two_terms, double budget) {
  const Matrix m{static_cast<Format>(format), rows, cols, nullptr};
  if (rows < kLanes || m.group_bytes() == 0 || tokens < 1) {
    throw nb::value_error("no such matrix");
  }
  const int64_t groups = rows / kLanes;
  Memory memory(static_cast<size_t>(groups) * m.group_bytes(), true);
  std::fill_n(memory.data(), memory.bytes(), uint8_t{1});  // pages that were never written to are read from cache
  const PackedWeight weight{m.format, groups * kLanes, cols, m.group_bytes(), memory.data()};
  const std::vector<float> x(static_cast<size_t>(tokens * cols), 1.0f);
  std::vector<float> y(static_cast<size_t>(tokens * kLanes));
  const FloatMode mode;
  const Product product(kernels(isa).linear, weight, x.data(), tokens, two_terms);
  // A run takes about a millisecond: longer ones are interrupted by other work.
  const double work = static_cast<double>(tokens * cols) * 32.0, bytes = static_cast<double>(m.group_bytes());
  const auto run = std::clamp<int64_t>(static_cast<int64_t>(1e-3 / std::max(work / 1e11, bytes / 2e10)), 1, groups);
  const double seconds = best_seconds(budget, [&](int64_t i) {
    const int64_t first = i * run % (groups - run + 1);
    for (int64_t g = first; g < first + run; ++g) {
      product.group(g, y.data(), kLanes);
    }
  });
  return static_cast<double>(run * kLanes) / seconds;
}

// Operations per second, two for each weight, of one thread's integer dot products alone.
double dots_per_second(const std::string& isa, bool two_terms, int bits, double budget) {
  constexpr size_t kRoom = 4096;
  Memory block(kRoom), q(kRoom), sums(kRoom);
  const LinearKernels& k = kernels(isa).linear;
  int64_t operations = 0;
  const double seconds = best_seconds(budget, [&](int64_t) {
    operations = k.dots_alone(two_terms, bits, block.data(), q.data(), 2000, sums.as<int32_t>());
  });
  return static_cast<double>(operations) / seconds;
}

// Bytes per second of one thread that only reads.
double bytes_read_per_second(int64_t bytes, double budget) {
  constexpr int64_t kWords = 1 << 21;  // 16 MiB a run
  const int64_t runs = bytes / (8 * kWords);
  if (runs < 1) {
    throw nb::value_error("at least 16 MiB are needed");
  }
  Memory memory(static_cast<size_t>(runs * kWords) * 8, true);
  std::fill_n(memory.data(), memory.bytes(), uint8_t{1});
  volatile uint64_t sink = 0;
  const double seconds = best_seconds(budget, [&](int64_t i) {
    const uint64_t* words = memory.as<uint64_t>() + i % runs * kWords;
    uint64_t sum = 0;
    for (int64_t k = 0; k < kWords; ++k) {
      sum ^= words[k];
    }
    sink = sink + sum;
  });
  return 8.0 * static_cast<double>(kWords) / seconds;
}

}  // namespace

void bind_check_linear(nb::module_& check) {
  check.def("linear", &linear, nb::arg("isa"), nb::arg("format"), nb::arg("rows"), nb::arg("file"), nb::arg("x"),
            nb::arg("two_terms"));
  check.def("rough", &rough, nb::arg("isa"), nb::arg("format"), nb::arg("rows"), nb::arg("file"), nb::arg("x"),
            nb::arg("two_terms"));
  check.def("quantize", &quantize, nb::arg("isa"), nb::arg("x"), nb::arg("two_terms"));
  check.def("dequantize", &dequantize, nb::arg("isa"), nb::arg("format"), nb::arg("rows"), nb::arg("cols"),
            nb::arg("file"), nb::arg("scale"));
  check.def("outputs_per_second", &outputs_per_second, nb::arg("isa"), nb::arg("format"), nb::arg("rows"),
            nb::arg("cols"), nb::arg("tokens"), nb::arg("two_terms"), nb::arg("budget"));
  check.def("dots_per_second", &dots_per_second, nb::arg("isa"), nb::arg("two_terms"), nb::arg("bits"),
            nb::arg("budget"));
  check.def("bytes_read_per_second", &bytes_read_per_second, nb::arg("bytes"), nb::arg("budget"));
}

}  // namespace cabochon
