// Quantised activations and matrix products over sixteen lanes (docs/arithmetic.md sections 3 and 4).
//
// A file that includes this first defines CABOCHON_ISA and includes one of simd/*_dot.h. Lanes are output rows, so
// every function below adds the blocks of one output in the same order with the same operations, for any number of
// rows.

#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/linear.h"
#include "kernels/linear_blocks.inl"
#include "kernels/linear_float.inl"
#include "kernels/tiles.inl"

namespace cabochon::CABOCHON_ISA {

// ---- Activations ----------------------------------------------------------------------------------------------

template <bool TwoTerms>
inline void quantize(const float* x, int64_t cols, uint8_t* q, float* scales, int32_t* sums) {
  constexpr float kLimit = TwoTerms ? 32512.0f : 127.0f;
  constexpr float kSmallest = 0x1p-100f;  // below it kLimit / a may overflow
  for (int64_t b = 0; b < cols / kBlock; ++b, x += kBlock, q += 2 * kBlock, sums += 2) {
    const F32x16 first = load(x), second = load(x + 16);
    const float a = tree_max(max(abs(first), abs(second)));
    const F32x16 zero = broadcast(0.0f);
    const float finite = tree_sum(first * zero + second * zero);  // NaN if there is an infinity or NaN
    float inverse = 0.0f;
    if (finite != 0.0f) {
      scales[b] = finite;
    } else if (a < kSmallest) {
      scales[b] = 0.0f;
    } else {
      scales[b] = a / kLimit;
      inverse = kLimit / a;
    }
    const bool none = inverse == 0.0f;
    const I32x16 q_first = none ? broadcast_i32(0) : round_i32(first * broadcast(inverse));
    const I32x16 q_second = none ? broadcast_i32(0) : round_i32(second * broadcast(inverse));
    store_activations<TwoTerms>(q, q_first);
    store_activations<TwoTerms>(q + kBlock, q_second);
    sums[0] = sum_lanes(q_first);
    sums[1] = sum_lanes(q_second);
  }
}

inline void quantize_row(const float* x, int64_t cols, bool two_terms, uint8_t* q, float* scales, int32_t* sums) {
  if (two_terms) {
    quantize<true>(x, cols, q, scales, sums);
  } else {
    quantize<false>(x, cols, q, scales, sums);
  }
}

// ---- Integer weights ------------------------------------------------------------------------------------------

// Adds one block to the accumulator of one row of activations. `total` holds sums over unsigned weights.
template <class Block>
inline F32x16 add_block(F32x16 acc, const BlockScales& w, const I32x16* total, float scale, const int32_t* sums) {
  const F32x16 s = broadcast(scale);
  if constexpr (Block::kHalves == 2) {
    const I32x16 first = total[0] - broadcast_i32(Block::Layout::kOffset * sums[0]);
    const I32x16 second = total[1] - broadcast_i32(Block::Layout::kOffset * sums[1]);
    acc = fma(to_f32(first), w.scale[0] * s, acc);
    acc = fma(to_f32(second), w.scale[1] * s, acc);
  } else if constexpr (Block::Layout::kOffset != 0) {
    const I32x16 all = total[0] - broadcast_i32(Block::Layout::kOffset * (sums[0] + sums[1]));
    acc = fma(to_f32(all), w.scale[0] * s, acc);
  } else {
    acc = fma(to_f32(total[0]), w.scale[0] * s, acc);
  }
  if constexpr (Block::kHasMin) {
    acc = fma(w.minus_min, broadcast(scale * static_cast<float>(sums[0] + sums[1])), acc);
  }
  return acc;
}

// Where the rows of a tile begin.
struct TileRows {
  const uint8_t* q;
  const float* scales;
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
template <class Block, bool TwoTerms, int R>
inline void few_rows(const uint8_t* group, int64_t blocks, const TileRows& rows, int lanes_present) {
  using D = Dot<TwoTerms, Block::kBits>;
  constexpr int H = Block::kHalves;
  F32x16 acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    acc[r] = broadcast(0.0f);
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const Block block(group, b);
    const uint8_t* q = rows.q + 2 * kBlock * b;
    typename D::Sum sum[R][H];
    const auto add_pair = [&](const SlicePair& pair, int j) __attribute__((always_inline)) {
      const typename D::Slice first = D::widen(pair.first), second = D::widen(pair.second);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sum[r][0].add(first, q + r * rows.q_stride + 8 * j);
        sum[r][H - 1].add(second, q + r * rows.q_stride + 8 * (j + 4));
      }
    };
    add_pair(block.template pair<0>(), 0);
    add_pair(block.template pair<1>(), 1);
    add_pair(block.template pair<2>(), 2);
    add_pair(block.template pair<3>(), 3);
    const BlockScales w = block.scales();
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      I32x16 total[H];
      for (int h = 0; h < H; ++h) {
        total[h] = sum[r][h].total();
      }
      acc[r] = add_block<Block>(acc[r], w, total, rows.scales[r * rows.scales_stride + b],
                                rows.sums + r * rows.sums_stride + 2 * b);
    }
  }
  for (int r = 0; r < R; ++r) {
    store_n(rows.y + r * rows.y_stride, acc[r], lanes_present);
  }
}

// Many rows: a panel of unpacked blocks, read again for every tile of rows. Per block 8 slices and the scales.
inline constexpr int64_t kPanelBlocks = 16;
template <class Block, bool TwoTerms>
struct Panel {
  using D = Dot<TwoTerms, Block::kBits>;
  static constexpr int64_t kScales = 8 * D::kSliceBytes;
  static constexpr int64_t kMinima = kScales + 64 * Block::kHalves;
  static constexpr int64_t kBlockBytes = kMinima + (Block::kHasMin ? 64 : 0);

  static void fill(uint8_t* out, const uint8_t* group, int64_t first, int64_t blocks) {
    for (int64_t b = first; b < first + blocks; ++b, out += kBlockBytes) {
      const Block block(group, b);
      const auto put = [&](const SlicePair& pair, int j) __attribute__((always_inline)) {
        D::store(out + D::kSliceBytes * j, D::widen(pair.first));
        D::store(out + D::kSliceBytes * (j + 4), D::widen(pair.second));
      };
      put(block.template pair<0>(), 0);
      put(block.template pair<1>(), 1);
      put(block.template pair<2>(), 2);
      put(block.template pair<3>(), 3);
      const BlockScales w = block.scales();
      for (int h = 0; h < Block::kHalves; ++h) {
        cabochon::CABOCHON_ISA::store(reinterpret_cast<float*>(out + kScales + 64 * h), w.scale[h]);
      }
      if constexpr (Block::kHasMin) {
        cabochon::CABOCHON_ISA::store(reinterpret_cast<float*>(out + kMinima), w.minus_min);
      }
    }
  }

  static BlockScales scales(const uint8_t* block) {
    BlockScales w{};
    for (int h = 0; h < Block::kHalves; ++h) {
      w.scale[h] = load(reinterpret_cast<const float*>(block + kScales + 64 * h));
    }
    if constexpr (Block::kHasMin) {
      w.minus_min = load(reinterpret_cast<const float*>(block + kMinima));
    }
    return w;
  }
};

// Continues R rows' sums in y over the panel's blocks, the first of which is block `first`.
template <class Block, bool TwoTerms, int R>
inline void tile(const uint8_t* panel, int64_t first, int64_t blocks, const TileRows& rows, int lanes_present) {
  using P = Panel<Block, TwoTerms>;
  using D = typename P::D;
  constexpr int H = Block::kHalves;
  F32x16 acc[R];
  for (int r = 0; r < R; ++r) {
    acc[r] = first == 0 ? broadcast(0.0f) : load_n(rows.y + r * rows.y_stride, lanes_present);
  }
  for (int64_t b = first; b < first + blocks; ++b, panel += P::kBlockBytes) {
    const uint8_t* q = rows.q + 2 * kBlock * b;
    I32x16 total[R][H];
    if constexpr (H == 1) {
      typename D::template Tile<R> sums;
      sums.add_half(panel, q, rows.q_stride);
      sums.add_half(panel + 4 * D::kSliceBytes, q + kBlock, rows.q_stride);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        total[r][0] = sums.total(r);
      }
    } else {
      for (int h = 0; h < 2; ++h) {
        typename D::template Tile<R> sums;
        sums.add_half(panel + 4 * h * D::kSliceBytes, q + h * kBlock, rows.q_stride);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          total[r][h] = sums.total(r);
        }
      }
    }
    const BlockScales w = P::scales(panel);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      acc[r] = add_block<Block>(acc[r], w, total[r], rows.scales[r * rows.scales_stride + b],
                                rows.sums + r * rows.sums_stride + 2 * b);
    }
  }
  for (int r = 0; r < R; ++r) {
    store_n(rows.y + r * rows.y_stride, acc[r], lanes_present);
  }
}

template <class Block, bool TwoTerms>
inline void group_of(const PackedWeight& w, const uint8_t* group, int lanes_present, const QuantizedRows& x,
                     int64_t rows, float* y, int64_t y_stride, uint8_t* scratch) {
  const int64_t blocks = w.cols / kBlock;
  if (rows <= kFewRows) {
    with_constant<kFewRows>(rows, [&](auto n) {
      few_rows<Block, TwoTerms, n.value>(group, blocks, TileRows(x, w.cols, y, y_stride, 0), lanes_present);
    });
    return;
  }
  for (int64_t first = 0; first < blocks; first += kPanelBlocks) {
    const int64_t count = blocks - first < kPanelBlocks ? blocks - first : kPanelBlocks;
    Panel<Block, TwoTerms>::fill(scratch, group, first, count);
    each_tile(rows, kTileRows, [&](int64_t row, int64_t n) {
      with_constant<kTileRows>(n, [&](auto r) {
        tile<Block, TwoTerms, r.value>(scratch, first, count, TileRows(x, w.cols, y, y_stride, row), lanes_present);
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
      return group_of<BlockQ8_0, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
    case Format::Q5_0:
      return group_of<BlockQ5_0, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
    case Format::Q4_K:
      return group_of<BlockQ4_K, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
    case Format::Q6_K:
      return group_of<BlockQ6_K, TwoTerms>(w, data, present, x, rows, y, y_stride, scratch);
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
  constexpr int64_t kMost = Panel<BlockQ6_K, true>::kBlockBytes;  // two scales, or a scale and a minimum
  return kPanelBlocks * kMost;
}

inline LinearKernels linear_kernels() {
  return {quantize_row, linear_group, linear_group_float, dequantize_row, linear_scratch_bytes};
}

}  // namespace cabochon::CABOCHON_ISA
