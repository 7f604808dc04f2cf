// What the products with few and with many rows of quantised activations share.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// Where the rows of a tile begin.
struct TileRows {
  const uint8_t* q;
  const ActivationScale* scales;
  const int32_t* sums;
  float* y;
  int64_t q_stride, scales_stride, sums_stride, y_stride;  // y_stride and the rest in elements of their arrays

  TileRows(const QuantizedRows& x, int64_t cols, float* out, int64_t out_stride, int64_t row)
      : q(x.q + row * 2 * cols),
        scales(x.scales + row * (cols / kBlock)),
        sums(x.sums + row * (cols / 16)),
        y(out + row * out_stride),
        q_stride(2 * cols),
        scales_stride(cols / kBlock),
        sums_stride(cols / 16),
        y_stride(out_stride) {}
};

// The sums over weights less `offset`, from sums over weights.
CABOCHON_INLINE inline I32x16 without_offset(I32x16 total, int32_t offset, int32_t activation_sum) {
  return total - broadcast_i32(offset * activation_sum);
}

// Adds one half of a block (or the block, where it has one scale) to the accumulator of one row of activations.
CABOCHON_INLINE inline F32x16 add_scaled(F32x16 acc, I32x16 total, F32x16 weight_scale, float scale) {
  return fma(to_f32(total), weight_scale * broadcast(scale), acc);
}

// What a minimum is multiplied with: of half h, or of the block.
template <int Halves>
CABOCHON_INLINE inline float minus_sum(const ActivationScale& scale, int h) {
  return Halves == 2 ? scale.minus_half_sums[h] : scale.minus_scaled_sum;
}

}  // namespace cabochon::CABOCHON_ISA
