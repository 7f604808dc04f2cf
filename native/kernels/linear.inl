// Quantised activations and matrix products over sixteen lanes (docs/arithmetic.md sections 3 and 4).
//
// A file that includes this first defines CABOCHON_ISA and includes one of simd/*_dot.h. Lanes are output rows, so
// every function below adds the blocks of one output in the same order with the same operations, for any number of
// rows.

#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/linear.h"
#include "kernels/linear_float.inl"
#include "kernels/linear_units.inl"
#include "kernels/tiles.inl"
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
    scales[b] = {scale, -(scale * static_cast<float>(sums[0] + sums[1]))};
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

// The sums over weights less `offset`, from sums over weights.
template <int Offset>
CABOCHON_INLINE inline I32x16 without_offset(I32x16 total, int32_t activation_sum) {
  if constexpr (Offset == 0) {
    return total;
  } else {
    return total - broadcast_i32(Offset * activation_sum);
  }
}

// Adds one half of a block (or the block, where it has one scale) to the accumulator of one row of activations.
CABOCHON_INLINE inline F32x16 add_scaled(F32x16 acc, I32x16 total, F32x16 weight_scale, float scale) {
  return fma(to_f32(total), weight_scale * broadcast(scale), acc);
}

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

// Few rows: weights are unpacked in registers, meet every row and are forgotten.
template <class Unit, bool TwoTerms, int R>
inline void few_rows(const uint8_t* group, int64_t units, const TileRows& rows, int lanes_present) {
  using D = Dot<TwoTerms, Unit::kBits>;
  constexpr int H = Unit::kHalves, kOffset = Unit::Layout::kOffset, kBytes = Unit::Layout::kBytes;
  constexpr int kAhead = 1536;  // bytes: far enough for memory, near enough for the first cache
  F32x16 acc[R];
  repeat<R>([&](auto r) CABOCHON_INLINE { acc[r] = broadcast(0.0f); });
  for (int64_t u = 0; u < units; ++u, group += kBytes) {
    const Unit unit(group);
    for (int i = 0; i < Unit::kBlocks; ++i) {
      for (int line = 0; line < kBytes / Unit::kBlocks; line += 64) {
        __builtin_prefetch(group + kBytes / Unit::kBlocks * i + kAhead + line);
      }
      const int64_t b = u * Unit::kBlocks + i;
      const uint8_t* q = rows.q + 2 * kBlock * b;
      decltype(D::zero()) sum[R][H];
      repeat<R>([&](auto r) CABOCHON_INLINE { repeat<H>([&](auto h) CABOCHON_INLINE { sum[r][h] = D::zero(); }); });
      repeat<4>([&](auto j) CABOCHON_INLINE {
        const SlicePair pair = unit.template pair<j>(i);
        const auto first = D::widen(pair.first);
        repeat<R>([&](auto r) CABOCHON_INLINE { D::add(sum[r][0], first, q + r * rows.q_stride + 8 * j); });
        const auto second = D::widen(pair.second);
        repeat<R>([&](auto r) CABOCHON_INLINE { D::add(sum[r][H - 1], second, q + r * rows.q_stride + 8 * (j + 4)); });
      });
      const BlockScales w = unit.scales(i);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const ActivationScale& scale = rows.scales[r * rows.scales_stride + b];
        const int32_t* sums = rows.sums + r * rows.sums_stride + 2 * b;
        repeat<H>([&](auto h) CABOCHON_INLINE {
          const int32_t activation_sum = H == 2 ? sums[h] : sums[0] + sums[1];
          const I32x16 total = without_offset<kOffset>(D::total(sum[r][h]), activation_sum);
          acc[r] = add_scaled(acc[r], total, w.of_half(h), scale.scale);
        });
        if constexpr (Unit::kHasMin) {
          acc[r] = fma(w.minimum, broadcast(scale.minus_scaled_sum), acc[r]);
        }
      });
    }
  }
  repeat<R>([&](auto r) CABOCHON_INLINE { store_n(rows.y + r * rows.y_stride, acc[r], lanes_present); });
}

// Many rows: a panel of unpacked blocks, read again for every tile of rows. Per block 8 slices and the scales.
inline constexpr int64_t kPanelBlocks = 16;
template <class Unit, bool TwoTerms>
struct Panel {
  using D = Dot<TwoTerms, Unit::kBits>;
  static constexpr int64_t kScales = 8 * D::kSliceBytes;
  static constexpr int64_t kMinima = kScales + 64 * Unit::kHalves;
  static constexpr int64_t kBlockBytes = kMinima + (Unit::kHasMin ? 64 : 0);
  static constexpr int64_t kUnits = kPanelBlocks / Unit::kBlocks;

  static void fill(uint8_t* out, const uint8_t* from, int64_t units) {
    for (int64_t u = 0; u < units; ++u) {
      const Unit unit(from + u * Unit::Layout::kBytes);
      for (int i = 0; i < Unit::kBlocks; ++i, out += kBlockBytes) {
        repeat<4>([&](auto j) CABOCHON_INLINE {
          const SlicePair pair = unit.template pair<j>(i);
          D::store(out + D::kSliceBytes * j, pair.first, Unit::Layout::kOffset);
          D::store(out + D::kSliceBytes * (j + 4), pair.second, Unit::Layout::kOffset);
        });
        const BlockScales w = unit.scales(i);
        for (int h = 0; h < Unit::kHalves; ++h) {
          store(reinterpret_cast<float*>(out + kScales + 64 * h), w.of_half(h));
        }
        if constexpr (Unit::kHasMin) {
          store(reinterpret_cast<float*>(out + kMinima), w.minimum);
        }
      }
    }
  }
};

// Continues R rows' sums in y over the panel's blocks, the first of which is block `first`.
template <class Unit, bool TwoTerms, int R>
inline void tile(const uint8_t* panel, int64_t first, int64_t blocks, const TileRows& rows, int lanes_present) {
  using P = Panel<Unit, TwoTerms>;
  using D = typename P::D;
  constexpr int H = Unit::kHalves, kOffset = D::kSigned ? 0 : Unit::Layout::kOffset;
  F32x16 acc[R];
  for (int r = 0; r < R; ++r) {
    acc[r] = first == 0 ? broadcast(0.0f) : load_n(rows.y + r * rows.y_stride, lanes_present);
  }
  for (int64_t b = first; b < first + blocks; ++b, panel += P::kBlockBytes) {
    const uint8_t* q = rows.q + 2 * kBlock * b;
    repeat<H>([&](auto h) CABOCHON_INLINE {
      const uint8_t* slices = panel + h * 4 * D::kSliceBytes;
      D::template tile<R, 8 / H>(slices, q + h * kBlock, rows.q_stride, [&](auto r, I32x16 total) CABOCHON_INLINE {
        const ActivationScale& scale = rows.scales[r * rows.scales_stride + b];
        const int32_t* sums = rows.sums + r * rows.sums_stride + 2 * b;
        const int32_t activation_sum = H == 2 ? sums[h] : sums[0] + sums[1];
        const F32x16 weight_scale = load(reinterpret_cast<const float*>(panel + P::kScales + 64 * h));
        acc[r] = add_scaled(acc[r], without_offset<kOffset>(total, activation_sum), weight_scale, scale.scale);
        if constexpr (Unit::kHasMin) {
          const F32x16 minimum = load(reinterpret_cast<const float*>(panel + P::kMinima));
          acc[r] = fma(minimum, broadcast(scale.minus_scaled_sum), acc[r]);
        }
      });
    });
  }
  for (int r = 0; r < R; ++r) {
    store_n(rows.y + r * rows.y_stride, acc[r], lanes_present);
  }
}

template <class Unit, bool TwoTerms>
inline void group_of(const PackedWeight& w, const uint8_t* group, int lanes_present, const QuantizedRows& x,
                     int64_t rows, float* y, int64_t y_stride, uint8_t* scratch) {
  using P = Panel<Unit, TwoTerms>;
  const int64_t units = w.cols / Unit::Layout::kInputs;
  if (rows <= kDirectRows) {
    each_tile(rows, kFewRows, [&](int64_t row, int64_t n) {
      with_constant<kFewRows>(n, [&](auto r) {
        few_rows<Unit, TwoTerms, r.value>(group, units, TileRows(x, w.cols, y, y_stride, row), lanes_present);
      });
    });
    return;
  }
  for (int64_t first = 0; first < units; first += P::kUnits) {
    const int64_t count = units - first < P::kUnits ? units - first : P::kUnits;
    P::fill(scratch, group + first * Unit::Layout::kBytes, count);
    each_tile(rows, kTileRows, [&](int64_t row, int64_t n) {
      with_constant<kTileRows>(n, [&](auto r) {
        tile<Unit, TwoTerms, r.value>(scratch, first * Unit::kBlocks, count * Unit::kBlocks,
                                      TileRows(x, w.cols, y, y_stride, row), lanes_present);
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
  switch (w.format) {
    case Format::Q8_0:
      return group_of<UnitQ8_0, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
    case Format::Q5_0:
      return group_of<UnitQ5_0, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
    case Format::Q4_K:
      return group_of<UnitQ4_K, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
    case Format::Q6_K:
      return group_of<UnitQ6_K, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
    default:
      return;
  }
}

inline void linear_group(const PackedWeight& w, int64_t group, const QuantizedRows& x, int64_t rows, bool two_terms,
                         float* y, int64_t y_stride, uint8_t* scratch) {
  if (two_terms) {
    group_of_any<true>(w, group, x, rows, y, y_stride, scratch);
  } else {
    group_of_any<false>(w, group, x, rows, y, y_stride, scratch);
  }
}

inline int64_t linear_scratch_bytes(int64_t) {
  constexpr int64_t kMost = Panel<UnitQ6_K, true>::kBlockBytes;  // two scales, or a scale and a minimum
  return kPanelBlocks * kMost;
}

inline LinearKernels linear_kernels() {
  return {quantize_row, linear_group, linear_group_float, dequantize_row, linear_scratch_bytes};
}

}  // namespace cabochon::CABOCHON_ISA
