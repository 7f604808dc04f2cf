// Rough products (kernels/best.h) over sixteen lanes.
#pragma once

#include <cstdint>

#include "kernels/best.h"
#include "kernels/linear_rows.inl"
#include "kernels/tiles.inl"
#include "kernels/units_of_256.inl"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// The 8 slices of a block as bytes: where they lie, or unpacked.
template <class Unit>
CABOCHON_INLINE inline const uint8_t* slices_of(const Unit& unit, int block, uint8_t* unpacked) {
  if constexpr (Unit::kPlain) {
    return unit.unit + Unit::Layout::kValues;
  } else {
    repeat<4>([&](auto j) CABOCHON_INLINE {
      const SlicePair pair = unit.template pair<j>(block);
      store_bytes(unpacked + layout::kSlice * j, pair.first);
      store_bytes(unpacked + layout::kSlice * (j + 4), pair.second);
    });
    return unpacked;
  }
}

// Adds a block to the sums of R rows, sixteen lanes each, that begin with row `row`.
template <int R, class Unit, class Scales>
inline void add_rough(const uint8_t* slices, const Scales& w, const RoughRows& x, int64_t cols, int64_t block,
                      int64_t row, float* acc) {
  constexpr int H = Unit::kHalves;
  const int8_t* q = x.q + row * cols + kBlock * block;
  repeat<H>([&](auto h) CABOCHON_INLINE {
    constexpr int kSlices = 8 / H, kFirst = h * kSlices;
    RoughDot::tile<R, kSlices>(
        slices + layout::kSlice * kFirst, q + 4 * kFirst, cols, [&](auto r, I32x16 total) CABOCHON_INLINE {
          const ActivationScale& scale = x.scales[(row + r) * (cols / kBlock) + block];
          const int32_t* sums = x.sums + (row + r) * (cols / 16) + 2 * block;
          total = without_offset(total, Unit::Layout::kOffset, H == 2 ? sums[h] : sums[0] + sums[1]);
          F32x16 sum = add_scaled(load(acc + kLanes * r), total, w.scale[h], scale.scale);
          if constexpr (Unit::kHasMin) {
            sum = fma(w.minimum[h], broadcast(minus_sum<H>(scale, h)), sum);
          }
          store(acc + kLanes * r, sum);
        });
  });
}

template <class Unit>
inline void rough_group_of(const PackedWeight& w, int64_t group, const float* norms, const RoughRows& x, int64_t rows,
                           float* bounds) {
  constexpr int kAhead = 1536;  // bytes, as in linear_few.inl
  constexpr int64_t kBytes = Unit::Layout::kBytes;
  // Roundings of the products that are compared, two for each scale and minimum, and some for all that is done here.
  const float rounding = static_cast<float>(4 * Unit::kHalves * (w.cols / kBlock) + 64) * 0x1p-24f;
  alignas(64) float acc[kRoughRows * kLanes] = {};
  alignas(64) uint8_t unpacked[8 * layout::kSlice];
  F32x16 errors = broadcast(0.0f), sizes = broadcast(0.0f);
  const uint8_t* at = w.group(group);
  for (int64_t block = 0; block < w.cols / kBlock; at += kBytes) {
    const Unit unit(at);
    for (int i = 0; i < Unit::kBlocks; ++i, ++block) {
      for (int line = 0; line < kBytes / Unit::kBlocks; line += 64) {
        __builtin_prefetch(at + kBytes / Unit::kBlocks * i + kAhead + line);
      }
      const uint8_t* slices = slices_of(unit, i, unpacked);
      const auto scales = unit.scales(i);
      each_tile(rows, kFewRows, [&](int64_t row, int64_t n) {
        with_constant<1, kFewRows>(
            n, [&](auto r) { add_rough<r.value, Unit>(slices, scales, x, w.cols, block, row, acc + kLanes * row); });
      });
      const F32x16 norm = broadcast(norms[block]);
      errors = fma(norm, load(x.errors + kRoughRows * block), errors);
      sizes = fma(norm, load(x.sizes + kRoughRows * block), sizes);
    }
  }
  // Cauchy and Schwarz, block by block. The last term is above what is lost where numbers are too small to be exact.
  const F32x16 off = (errors + sizes * broadcast(rounding)) * broadcast(1.0f + 0x1p-10f) + broadcast(0x1p-100f);
  alignas(64) float off_by[kRoughRows];
  store(off_by, off);
  for (int64_t r = 0; r < rows; ++r) {
    const F32x16 v = load(acc + kLanes * r);
    bounds[r] = tree_max(v) + off_by[r] + tree_sum(v * broadcast(0.0f));  // NaN where a product is not finite
  }
}

// Of the weights of sixteen lanes over some slices.
template <int Slices>
inline void sums_of_squares(const uint8_t* slices, int offset, float* sums) {
  int32_t total[kLanes] = {};
  for (int byte = 0; byte < layout::kSlice; ++byte) {  // [lane][input]
    for (int k = 0; k < Slices; ++k) {
      const int weight = slices[layout::kSlice * k + byte] - offset;
      total[byte / 4] += weight * weight;
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    sums[lane] = static_cast<float>(total[lane]);
  }
}

template <class Unit>
inline void block_norms_of(const uint8_t* at, int64_t blocks, float* norms) {
  constexpr int H = Unit::kHalves;
  alignas(64) uint8_t unpacked[8 * layout::kSlice];
  for (int64_t block = 0; block < blocks; at += Unit::Layout::kBytes) {
    const Unit unit(at);
    for (int i = 0; i < Unit::kBlocks; ++i, ++block) {
      const uint8_t* slices = slices_of(unit, i, unpacked);
      const auto w = unit.scales(i);
      F32x16 squares = broadcast(0.0f);
      repeat<H>([&](auto h) CABOCHON_INLINE {
        float sums[kLanes];
        sums_of_squares<8 / H>(slices + layout::kSlice * (8 / H) * h, Unit::Layout::kOffset, sums);
        F32x16 norm = sqrt(load(sums)) * abs(w.scale[h]);
        if constexpr (Unit::kHasMin) {  // what it multiplies is at most a norm times the root of the inputs' number
          norm = fma(abs(w.minimum[h]), broadcast(H == 2 ? 4.0f : 5.656855f), norm);
        }
        squares = fma(norm, norm, squares);
      });
      const F32x16 norm = sqrt(squares);
      norms[block] = tree_max(norm) + tree_sum(norm * broadcast(0.0f));  // NaN where one is not finite
    }
  }
}

inline void block_norms(const PackedWeight& w, int64_t group, float* norms) {
  with_unit(w.format, [&]<class Unit>() { block_norms_of<Unit>(w.group(group), w.cols / kBlock, norms); });
}

inline void rough_group(const PackedWeight& w, int64_t group, const float* norms, const RoughRows& x, int64_t rows,
                        float* bounds) {
  with_unit(w.format, [&]<class Unit>() { rough_group_of<Unit>(w, group, norms, x, rows, bounds); });
}

inline BestKernels best_kernels() { return {block_norms, rough_group}; }

}  // namespace cabochon::CABOCHON_ISA
