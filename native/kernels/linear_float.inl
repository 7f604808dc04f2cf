// Float weights (docs/arithmetic.md section 4): x stays binary32, one FMA per input, inputs ascending.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/tiles.inl"

namespace cabochon::CABOCHON_ISA {

template <Format F>
inline F32x16 load_weights(const uint8_t* group, int64_t k) {
  if constexpr (F == Format::F32) {
    return load(reinterpret_cast<const float*>(group) + kLanes * k);
  } else if constexpr (F == Format::F16) {
    return load_f16(reinterpret_cast<const uint16_t*>(group) + kLanes * k);
  } else {
    return load_bf16(reinterpret_cast<const uint16_t*>(group) + kLanes * k);
  }
}

template <Format F, int R>
inline void float_tile(const uint8_t* group, int64_t cols, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                       int lanes_present) {
  F32x16 acc[R];
  repeat<R>([&](auto r) CABOCHON_INLINE { acc[r] = broadcast(0.0f); });
  for (int64_t k = 0; k < cols; ++k) {
    const F32x16 w = load_weights<F>(group, k);
    repeat<R>([&](auto r) CABOCHON_INLINE { acc[r] = fma(w, broadcast(x[r * x_stride + k]), acc[r]); });
  }
  repeat<R>([&](auto r) CABOCHON_INLINE { store_n(y + r * y_stride, acc[r], lanes_present); });
}

template <Format F>
inline void float_group(const PackedWeight& w, const uint8_t* group, int lanes_present, const float* x,
                        int64_t x_stride, int64_t rows, float* y, int64_t y_stride) {
  each_tile(rows, kTileRows, [&](int64_t row, int64_t n) {
    with_constant<1, kTileRows>(n, [&](auto r) {
      float_tile<F, r.value>(group, w.cols, x + row * x_stride, x_stride, y + row * y_stride, y_stride, lanes_present);
    });
  });
}

inline void linear_group_float(const PackedWeight& w, int64_t group, const float* x, int64_t x_stride, int64_t rows,
                               float* y, int64_t y_stride) {
  const uint8_t* data = w.data + static_cast<size_t>(group) * w.group_bytes;
  const int64_t left = w.rows - kLanes * group;
  const int present = left < kLanes ? static_cast<int>(left) : kLanes;
  switch (w.format) {
    case Format::F32:
      return float_group<Format::F32>(w, data, present, x, x_stride, rows, y, y_stride);
    case Format::F16:
      return float_group<Format::F16>(w, data, present, x, x_stride, rows, y, y_stride);
    case Format::BF16:
      return float_group<Format::BF16>(w, data, present, x, x_stride, rows, y, y_stride);
    default:
      return;
  }
}

}  // namespace cabochon::CABOCHON_ISA
