// Single rows of packed weights as floats: the file format's own operations, for the embedding.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/linear_float.inl"
#include "kernels/units_of_256.inl"

namespace cabochon::CABOCHON_ISA {

// One block of one lane. All sixteen are unpacked: a row is a few microseconds, and there is one way to read a format.
template <class Unit>
inline void dequantize_block(const Unit& unit, int i, int lane, float scale, float* out) {
  alignas(64) uint8_t slices[8][layout::kSlice];
  repeat<4>([&](auto j) CABOCHON_INLINE {
    const SlicePair pair = unit.template pair<j>(i);
    store_bytes(slices[j], pair.first);
    store_bytes(slices[j + 4], pair.second);
  });
  const auto w = unit.scales(i);
  for (int h = 0; h < 2; ++h) {
    float scales[kLanes], minima[kLanes];
    store(scales, w.scale[h % Unit::kHalves]);
    if constexpr (Unit::kHasMin) {
      store(minima, w.minimum[h % Unit::kHalves]);
    }
    for (int k = 16 * h; k < 16 * h + 16; ++k) {
      const int stored = slices[k / kSliceInputs][kSliceInputs * lane + k % kSliceInputs];
      float weight = scales[lane] * static_cast<float>(stored - Unit::Layout::kOffset);
      if constexpr (Unit::kHasMin) {
        weight = weight - minima[lane];
      }
      out[k] = weight * scale;
    }
  }
}

template <Format F>
inline void widen_row(const uint8_t* group, int64_t cols, int lane, float scale, float* out) {
  for (int64_t k = 0; k < cols; ++k) {
    float weights[kLanes];
    store(weights, load_weights<F>(group, k));
    out[k] = weights[lane] * scale;
  }
}

inline void dequantize_row(const PackedWeight& w, int64_t row, float scale, float* out) {
  const uint8_t* group = w.data + static_cast<size_t>(row / kLanes) * w.group_bytes;
  const int lane = static_cast<int>(row % kLanes);
  if (w.format == Format::F32) {
    widen_row<Format::F32>(group, w.cols, lane, scale, out);
  } else if (w.format == Format::F16) {
    widen_row<Format::F16>(group, w.cols, lane, scale, out);
  } else if (w.format == Format::BF16) {
    widen_row<Format::BF16>(group, w.cols, lane, scale, out);
  } else {
    with_unit(w.format, [&]<class Unit>() {
      for (int64_t u = 0; u < w.cols / Unit::Layout::kInputs; ++u) {
        const Unit unit(group + u * Unit::Layout::kBytes);
        for (int i = 0; i < Unit::kBlocks; ++i) {
          dequantize_block(unit, i, lane, scale, out + u * Unit::Layout::kInputs + kBlock * i);
        }
      }
    });
  }
}

}  // namespace cabochon::CABOCHON_ISA
