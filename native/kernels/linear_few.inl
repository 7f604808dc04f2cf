// Products with few rows of activations: bound by the memory that the weights come from.
#pragma once

#include <cstdint>

#include "kernels/linear_rows.inl"
#include "kernels/units.inl"

namespace cabochon::CABOCHON_ISA {

// Weights are unpacked in registers, meet every row and are forgotten.
template <class Unit, class D, int R>
inline void few_rows(const uint8_t* group, int64_t units, const TileRows& rows, int lanes_present) {
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
      const auto w = unit.scales(i);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const ActivationScale& scale = rows.scales[r * rows.scales_stride + b];
        const int32_t* sums = rows.sums + r * rows.sums_stride + 2 * b;
        repeat<H>([&](auto h) CABOCHON_INLINE {
          const int32_t activation_sum = H == 2 ? sums[h] : sums[0] + sums[1];
          const I32x16 total = without_offset(D::total(sum[r][h]), kOffset, activation_sum);
          acc[r] = add_scaled(acc[r], total, w.scale[h], scale.scale);
          if constexpr (Unit::kHasMin) {
            acc[r] = fma(w.minimum[h], broadcast(minus_sum<H>(scale, h)), acc[r]);
          }
        });
      });
    }
  }
  repeat<R>([&](auto r) CABOCHON_INLINE { store_n(rows.y + r * rows.y_stride, acc[r], lanes_present); });
}

}  // namespace cabochon::CABOCHON_ISA
