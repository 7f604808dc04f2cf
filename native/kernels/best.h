// Rough products of a matrix, and how far each may be from the true one: enough to tell which outputs cannot be the
// largest of their row (docs/arithmetic.md section 9).
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "weights/packed.h"

namespace cabochon {

inline constexpr int kRoughRows = 16;  // rows of activations at a time
// The most that activations which one 16-bit sum takes in may add up to, positive or negative ones: 255 * 128 < 2^15.
inline constexpr int kRoughLimit = 128;

// Up to kRoughRows rows of activations, quantised once more, to fewer bits. One 16-bit sum takes in inputs 0 and 1 of
// each 4 of a block, another inputs 2 and 3.
struct RoughRows {
  const int8_t* q;                // [rows][cols]
  const ActivationScale* scales;  // [rows][cols / 32]
  const int32_t* sums;            // [rows][cols / 16]: of q over half blocks
  const float* errors;            // [cols / 32][kRoughRows]: norm of what this quantisation took from a block
  const float* sizes;             // [cols / 32][kRoughRows]: at least the norms of a block before and after it, added
};

struct BestKernels {
  // Of each block of a group's inputs, the largest norm that one of its outputs has: cols / 32 floats.
  void (*block_norms)(const PackedWeight& w, int64_t group, float* norms);
  // bounds[r], for r in [0, rows): what no product of the group with row r is above; or NaN.
  void (*rough_group)(const PackedWeight& w, int64_t group, const float* norms, const RoughRows& x, int64_t rows,
                      float* bounds);
};

}  // namespace cabochon
