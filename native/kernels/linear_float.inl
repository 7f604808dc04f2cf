// Float weights (docs/arithmetic.md section 4), and single dequantised rows.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/linear.h"
#include "kernels/tiles.inl"
#include "weights/layout.h"

namespace cabochon::CABOCHON_ISA {

// ---- Float weights: x stays binary32, one FMA per input, inputs ascending ------------------------------------------

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
    with_constant<kTileRows>(n, [&](auto r) {
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

// ---- One row ----------------------------------------------------------------------------------------------------

inline float load_f16_at(const uint8_t* p, int lane) {
  uint16_t h;
  std::memcpy(&h, p + 2 * lane, 2);
  return f16_to_f32(h);
}

// Place of input k of a block among the bytes of its slices or, modulo 16, of its nibble chunks.
inline int byte_of(int k, int lane) {
  return layout::kSlice * (k / kSliceInputs) + kSliceInputs * lane + k % kSliceInputs;
}
inline int nibble_of(const uint8_t* chunks, int k, int lane) {
  const int byte = chunks[byte_of(k % 16, lane)];
  return k < 16 ? byte & 15 : byte >> 4;
}

inline void dequantize_q8_0(const uint8_t* unit, int lane, float scale, float* out) {
  using L = layout::Q8_0;
  const float d = load_f16_at(unit + L::kD, lane);
  for (int k = 0; k < 32; ++k) {
    out[k] = d * static_cast<float>(unit[L::kValues + byte_of(k, lane)] - L::kOffset) * scale;
  }
}

inline void dequantize_q5_0(const uint8_t* unit, int lane, float scale, float* out) {
  using L = layout::Q5_0;
  const float d = load_f16_at(unit + L::kD, lane);
  for (int k = 0; k < 32; ++k) {
    const int fifth = unit[L::kPlane + kSliceInputs * lane + k % kSliceInputs] >> (k / kSliceInputs) & 1;
    out[k] = d * static_cast<float>((nibble_of(unit + L::kValues, k, lane) | fifth << 4) - L::kOffset) * scale;
  }
}

inline void dequantize_q4_k(const uint8_t* unit, int lane, float scale, float* out) {
  using L = layout::Q4_K;
  const float d = load_f16_at(unit + L::kD, lane), dmin = load_f16_at(unit + L::kDMin, lane);
  for (int b = 0; b < 8; ++b) {
    const int low = unit[L::kScaleLow + 16 * b + lane];
    const int top = unit[L::kScaleTop + 8 * b + lane % 8] >> (lane < 8 ? 0 : 4);
    const float sub = d * static_cast<float>((low & 15) | (top & 3) << 4);
    const float minimum = dmin * static_cast<float>(low >> 4 | (top & 12) << 2);
    const uint8_t* chunks = unit + L::kValues + layout::kNibbleBytes * b;
    for (int k = 0; k < 32; ++k) {
      out[32 * b + k] = (sub * static_cast<float>(nibble_of(chunks, k, lane)) - minimum) * scale;
    }
  }
}

inline void dequantize_q6_k(const uint8_t* unit, int lane, float scale, float* out) {
  using L = layout::Q6_K;
  const float d = load_f16_at(unit + L::kD, lane);
  for (int b = 0; b < 8; ++b) {
    const uint8_t* values = unit + L::kValues + L::kBlockBytes * b;
    for (int k = 0; k < 32; ++k) {
      const int half = k / 16;
      const int top = values[L::kPlane + layout::kSlice * half + kSliceInputs * lane + k % kSliceInputs] >>
                          (2 * (k % 16 / kSliceInputs)) &
                      3;
      const auto sub = static_cast<int8_t>(unit[L::kScales + 16 * (2 * b + half) + lane]);
      const float weight =
          d * static_cast<float>(sub) * static_cast<float>((nibble_of(values, k, lane) | top << 4) - L::kOffset);
      out[32 * b + k] = weight * scale;
    }
  }
}

inline void dequantize_row(const PackedWeight& w, int64_t row, float scale, float* out) {
  const uint8_t* group = w.data + static_cast<size_t>(row / kLanes) * w.group_bytes;
  const int lane = static_cast<int>(row % kLanes);
  const auto each_unit = [&](auto layout, auto dequantize) {
    using L = decltype(layout);
    for (int64_t u = 0; u < w.cols / L::kInputs; ++u) {
      dequantize(group + u * L::kBytes, lane, scale, out + u * L::kInputs);
    }
  };
  switch (w.format) {
    case Format::Q8_0:
      return each_unit(layout::Q8_0{}, dequantize_q8_0);
    case Format::Q5_0:
      return each_unit(layout::Q5_0{}, dequantize_q5_0);
    case Format::Q4_K:
      return each_unit(layout::Q4_K{}, dequantize_q4_k);
    case Format::Q6_K:
      return each_unit(layout::Q6_K{}, dequantize_q6_k);
    case Format::F32:
      for (int64_t k = 0; k < w.cols; ++k) {
        float x;
        std::memcpy(&x, group + (k * kLanes + lane) * 4, 4);
        out[k] = x * scale;
      }
      return;
    case Format::F16:
    case Format::BF16:
      for (int64_t k = 0; k < w.cols; ++k) {
        uint16_t x;
        std::memcpy(&x, group + (k * kLanes + lane) * 2, 2);
        out[k] = (w.format == Format::F16 ? f16_to_f32(x) : bf16_to_f32(x)) * scale;
      }
      return;
  }
}

}  // namespace cabochon::CABOCHON_ISA
