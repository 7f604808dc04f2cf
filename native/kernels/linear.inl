// Quantised activations and matrix products over sixteen lanes (docs/arithmetic.md sections 3 and 4).
//
// A file that includes this first defines CABOCHON_ISA and includes one of simd/*_dot.h. Lanes are output rows, so
// every function below adds the blocks of one output in the same order with the same operations, for any number of
// rows.

#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/dequantize.inl"
#include "kernels/linear.h"
#include "kernels/linear_few.inl"
#include "kernels/linear_float.inl"
#include "kernels/linear_many.inl"
#include "kernels/tiles.inl"
#include "kernels/units_of_256.inl"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// ---- Activations ----------------------------------------------------------------------------------------------

template <bool TwoTerms>
inline void quantize(const float* x, int64_t cols, uint8_t* q, ActivationScale* scales, int32_t* sums) {
  constexpr float kLimit = TwoTerms ? 32512.0f : 127.0f;
  constexpr float kSmallest = 0x1p-100f;  // below it kLimit / a may overflow
  for (int64_t b = 0; b < cols / kBlock; ++b, x += kBlock, q += 2 * kBlock, sums += 2) {
    const F32x16 first = load(x), second = load(x + 16);
    const float a = tree_max(max(abs(first), abs(second)));
    const F32x16 zero = broadcast(0.0f);
    const float finite = tree_sum(first * zero + second * zero);  // NaN if there is an infinity or NaN
    const bool sound = finite == 0.0f;
    float scale = sound ? 0.0f : finite, inverse = 0.0f;
    if (sound && a >= kSmallest) {
      scale = a / kLimit;
      inverse = kLimit / a;
    }
    const bool none = inverse == 0.0f;
    const I32x16 q_first = none ? broadcast_i32(0) : round_i32(first * broadcast(inverse));
    const I32x16 q_second = none ? broadcast_i32(0) : round_i32(second * broadcast(inverse));
    store_activations<TwoTerms>(q, q_first);
    store_activations<TwoTerms>(q + kBlock, q_second);
    sums[0] = sum_lanes(q_first);
    sums[1] = sum_lanes(q_second);
    const auto minus_scaled = [&](int32_t sum) { return -(scale * static_cast<float>(sum)); };
    scales[b] = {scale, minus_scaled(sums[0] + sums[1]), {minus_scaled(sums[0]), minus_scaled(sums[1])}};
  }
}

inline void quantize_row(const float* x, int64_t cols, bool two_terms, uint8_t* q, ActivationScale* scales,
                         int32_t* sums) {
  if (two_terms) {
    quantize<true>(x, cols, q, scales, sums);
  } else {
    quantize<false>(x, cols, q, scales, sums);
  }
}

// ---- Integer weights ------------------------------------------------------------------------------------------

template <class Unit, class D>
inline void group_of(const PackedWeight& w, const uint8_t* group, int lanes_present, const QuantizedRows& x,
                     int64_t rows, float* y, int64_t y_stride, uint8_t* scratch) {
  const int64_t units = w.cols / Unit::Layout::kInputs;
  constexpr int kDirect = Unit::kPlain ? kDirectPlainRows : kDirectRows;
  if (rows <= kDirect) {
    each_tile(rows, kFewRows, [&](int64_t row, int64_t n) {
      with_constant<1, kFewRows>(n, [&](auto r) {
        few_rows<Unit, D, r.value>(group, units, TileRows(x, w.cols, y, y_stride, row), lanes_present);
      });
    });
    return;
  }
  constexpr int kLeast = least_tile(kDirect + 1, kTileRows);
  constexpr int64_t kUnits = kPanelBlocks / Unit::kBlocks, kBytes = Unit::Layout::kBytes;
  // With many tiles the wait is a small part, and what was asked for would leave the cache again.
  const int64_t tiles = tiles_of(rows, kTileRows);
  const int64_t step = tiles > 8 ? 0 : (kBytes / (Unit::kBlocks * tiles) + 63) / 64 * 64;
  for (int64_t first = 0; first < units; first += kUnits) {
    const int64_t count = units - first < kUnits ? units - first : kUnits;
    fill_panel<Unit, D>(scratch, group + first * kBytes, count);
    const uint8_t* after = group + (first + count) * kBytes;  // maybe the next group's
    NextWeights next{after, after + kUnits * kBytes, step};
    each_tile(rows, kTileRows, [&](int64_t row, int64_t n) {
      with_constant<kLeast, kTileRows>(n, [&](auto r) {
        tile<D, Unit::kHalves, Unit::kHasMin, r.value>(scratch, first * Unit::kBlocks, count * Unit::kBlocks,
                                                       Unit::Layout::kOffset, TileRows(x, w.cols, y, y_stride, row),
                                                       lanes_present, next);
      });
    });
  }
}

template <bool TwoTerms>
inline void group_of_any(const PackedWeight& w, int64_t group, const QuantizedRows& x, int64_t rows, float* y,
                         int64_t y_stride, uint8_t* scratch) {
  const uint8_t* data = w.data + static_cast<size_t>(group) * w.group_bytes;
  const int64_t left = w.rows - kLanes * group;
  const int present = left < kLanes ? static_cast<int>(left) : kLanes;
  with_unit(w.format, [&]<class Unit>() {
    group_of<Unit, Dot<TwoTerms, Unit::kBits>>(w, data, present, x, rows, y, y_stride, scratch);
  });
}

inline void linear_group(const PackedWeight& w, int64_t group, const QuantizedRows& x, int64_t rows, bool two_terms,
                         float* y, int64_t y_stride, uint8_t* scratch) {
  if (two_terms) {
    group_of_any<true>(w, group, x, rows, y, y_stride, scratch);
  } else {
    group_of_any<false>(w, group, x, rows, y, y_stride, scratch);
  }
}

inline int64_t dots_alone_of(bool two_terms, int bits, const uint8_t* block, const uint8_t* q, int64_t tiles,
                             int32_t* sums) {
  if (two_terms) {
    return dots_alone<Dot<true, 8>>(block, q, tiles, sums);
  }
  switch (bits) {
    case 8:
      return dots_alone<Dot<false, 8>>(block, q, tiles, sums);
    case 6:
      return dots_alone<Dot<false, 6>>(block, q, tiles, sums);
    case 5:
      return dots_alone<Dot<false, 5>>(block, q, tiles, sums);
    default:
      return dots_alone<Dot<false, 4>>(block, q, tiles, sums);
  }
}

inline int64_t linear_scratch_bytes(int64_t) {
  constexpr int64_t kMost = Panel<Dot<true, 8>, 2, true>::kBlockBytes;
  return kPanelBlocks * kMost;
}

inline LinearKernels linear_kernels() {
  return {quantize_row, linear_group, linear_group_float, dequantize_row, dots_alone_of, linear_scratch_bytes};
}

}  // namespace cabochon::CABOCHON_ISA
