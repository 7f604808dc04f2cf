// Products with many rows of activations: bound by the integer dot products.
#pragma once

#include <cstdint>

#include "kernels/linear_rows.inl"
#include "kernels/units.inl"

namespace cabochon::CABOCHON_ISA {

inline constexpr int64_t kPanelBlocks = 16;

// Some blocks of one group, unpacked once and read again for every tile of rows. Per block 8 slices as the dot product
// D wants them, then the scales of each half, then its minima. It depends on how a block is made up, not on the format.
template <class D, int Halves, bool HasMin>
struct Panel {
  static constexpr int64_t kScales = 8 * D::kSliceBytes;
  static constexpr int64_t kMinima = kScales + 64 * Halves;
  static constexpr int64_t kBlockBytes = kMinima + (HasMin ? 64 * Halves : 0);

  static const float* scales(const uint8_t* block, int half) {
    return reinterpret_cast<const float*>(block + kScales + 64 * half);
  }
  static const float* minima(const uint8_t* block, int half) {
    return reinterpret_cast<const float*>(block + kMinima + 64 * half);
  }
};

template <class Unit, class D>
inline void fill_panel(uint8_t* out, const uint8_t* from, int64_t units) {
  using P = Panel<D, Unit::kHalves, Unit::kHasMin>;
  for (int64_t u = 0; u < units; ++u) {
    const Unit unit(from + u * Unit::Layout::kBytes);
    for (int i = 0; i < Unit::kBlocks; ++i, out += P::kBlockBytes) {
      repeat<4>([&](auto j) CABOCHON_INLINE {
        const SlicePair pair = unit.template pair<j>(i);
        D::store(out + D::kSliceBytes * j, pair.first, Unit::Layout::kOffset);
        D::store(out + D::kSliceBytes * (j + 4), pair.second, Unit::Layout::kOffset);
      });
      const auto w = unit.scales(i);
      for (int h = 0; h < Unit::kHalves; ++h) {
        store(reinterpret_cast<float*>(out + P::kScales + 64 * h), w.scale[h]);
        if constexpr (Unit::kHasMin) {
          store(reinterpret_cast<float*>(out + P::kMinima + 64 * h), w.minimum[h]);
        }
      }
    }
  }
}

// The weights that the next panel is filled from, asked for a little at a time while this one is worked on: filling
// alone would wait for memory, and products alone leave it idle.
struct NextWeights {
  const uint8_t* at;
  const uint8_t* end;
  int64_t step;  // bytes, whole cache lines; 0 to ask for nothing

  CABOCHON_INLINE void fetch() {
    for (const uint8_t* stop = end - at < step ? end : at + step; at < stop; at += 64) {
      __builtin_prefetch(at, 0, 2);  // not into the first cache, which the panel and its rows fill
    }
  }
};

// Continues R rows' sums in y over the panel's blocks, the first of which is block `first`. Formats with minima have no
// offset; of the others D may have subtracted it already.
template <class D, int H, bool HasMin, int R>
inline void tile(const uint8_t* panel, int64_t first, int64_t blocks, int32_t offset, const TileRows& rows,
                 int lanes_present, NextWeights& next) {
  using P = Panel<D, H, HasMin>;
  F32x16 acc[R];
  for (int r = 0; r < R; ++r) {
    acc[r] = first == 0 ? broadcast(0.0f) : load_n(rows.y + r * rows.y_stride, lanes_present);
  }
  for (int64_t b = first; b < first + blocks; ++b, panel += P::kBlockBytes) {
    const uint8_t* q = rows.q + 2 * kBlock * b;
    next.fetch();
    repeat<H>([&](auto h) CABOCHON_INLINE {
      const uint8_t* slices = panel + h * 4 * D::kSliceBytes;
      D::template tile<R, 8 / H>(slices, q + h * kBlock, rows.q_stride, [&](auto r, I32x16 total) CABOCHON_INLINE {
        const ActivationScale& scale = rows.scales[r * rows.scales_stride + b];
        if constexpr (!HasMin && !D::kSigned) {
          const int32_t* sums = rows.sums + r * rows.sums_stride + 2 * b;
          total = without_offset(total, offset, H == 2 ? sums[h] : sums[0] + sums[1]);
        }
        acc[r] = add_scaled(acc[r], total, load(P::scales(panel, h)), scale.scale);
        if constexpr (HasMin) {
          acc[r] = fma(load(P::minima(panel, h)), broadcast(minus_sum<H>(scale, h)), acc[r]);
        }
      });
    });
  }
  for (int r = 0; r < R; ++r) {
    store_n(rows.y + r * rows.y_stride, acc[r], lanes_present);
  }
}

// The dot products of `tiles` tiles and nothing else, over one block that stays in the first cache: what products with
// many rows are bound by. Returns their operations, two for each weight and row.
template <class D>
inline int64_t dots_alone(const uint8_t* block, const uint8_t* q, int64_t tiles, int32_t* sums) {
  I32x16 total[kTileRows];
  for (int64_t i = 0; i < tiles; ++i) {
    D::template tile<kTileRows, 8>(block, q, 2 * kBlock, [&](auto r, I32x16 t) CABOCHON_INLINE { total[r] = t; });
    repeat<kTileRows>([&](auto r) CABOCHON_INLINE { store_i32(sums + kLanes * r, total[r]); });
    asm volatile("" ::: "memory");  // each tile anew
  }
  return 2 * tiles * kTileRows * kBlock * kLanes;
}

}  // namespace cabochon::CABOCHON_ISA
