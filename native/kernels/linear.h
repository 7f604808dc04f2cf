// Quantised activations and matrix products: the table of functions each instruction set supplies.
#pragma once

#include <cstdint>

#include "weights/packed.h"

namespace cabochon {

inline constexpr int kSliceInputs = 4;  // inputs that one integer dot instruction takes together

// What docs/arithmetic.md section 4 needs of 32 quantised activations besides their sums: s, -A, and -A of both halves.
struct ActivationScale {
  float scale;
  float minus_scaled_sum;
  float minus_half_sums[2];
};

// Activations of some rows, quantised (docs/arithmetic.md section 3) in the order one instruction set wants.
struct QuantizedRows {
  const uint8_t* q;               // [rows][cols / 4][8], written and read by the same set with the same `two_terms`
  const ActivationScale* scales;  // [rows][cols / 32]
  const int32_t* sums;            // [rows][cols / 16]: exact sums of q over half blocks
};

struct LinearKernels {
  // Quantises one row of `cols` floats (a multiple of 32). Writes cols/4*8 bytes, cols/32 scales, cols/16 sums.
  void (*quantize_row)(const float* x, int64_t cols, bool two_terms, uint8_t* q, ActivationScale* scales,
                       int32_t* sums);

  // y[t * y_stride + lane] for t in [0, rows) and the lanes of one group that exist (min(16, w.rows - 16*group)).
  // `scratch` has linear_scratch_bytes and begins on a cache line; its content is not kept.
  void (*linear_group)(const PackedWeight& w, int64_t group, const QuantizedRows& x, int64_t rows, bool two_terms,
                       float* y, int64_t y_stride, uint8_t* scratch);

  // The same for F32, F16 and BF16 weights; x[t * x_stride + k].
  void (*linear_group_float)(const PackedWeight& w, int64_t group, const float* x, int64_t x_stride, int64_t rows,
                             float* y, int64_t y_stride);

  // One dequantised row, exactly as the file format defines it, times `scale`. Writes w.cols floats.
  void (*dequantize_row)(const PackedWeight& w, int64_t row, float scale, float* out);

  // For benchmarks: computes `tiles` tiles of dot products with weights of `bits` bits and nothing else, from
  // 4096 bytes each of `block` and `q` to as many of `sums`. Returns the operations done, two for each weight.
  int64_t (*dots_alone)(bool two_terms, int bits, const uint8_t* block, const uint8_t* q, int64_t tiles, int32_t* sums);

  // Scratch bytes one thread needs for matrices of up to `cols` inputs.
  int64_t (*linear_scratch_bytes)(int64_t cols);
};

}  // namespace cabochon
