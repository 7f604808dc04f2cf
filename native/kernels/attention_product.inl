// The matrix product of attention. Included after one of simd/*.h, with CABOCHON_ACCUMULATORS defined.
//
// Both products are the same little one: queries times K with keys in the lanes, weights times V with elements of the
// head in the lanes. Each output is one chain of FMAs in one lane, however many queries share the loads.
#pragma once

#include <cstdint>

#include "kernels/math.inl"

namespace cabochon::CABOCHON_ISA {

// The page that comes next, to be fetched while this one is worked on: as row r, column c of this one are read, byte
// r * row_bytes + c * element_bytes of that one is asked for. Pages lie scattered, so the CPU cannot foresee them.
struct Ahead {
  const uint8_t* page;
  int64_t row_bytes;
  int64_t element_bytes;
};

// Rows of vectors in memory.
struct F32Rows {
  const float* p;
  int64_t stride;
  Ahead ahead;
  F32x16 at(int64_t row, int64_t column) const { return load(p + row * stride + column); }
};
struct F16Rows {
  const uint16_t* p;
  int64_t stride;
  Ahead ahead;
  F32x16 at(int64_t row, int64_t column) const { return load_f16(p + row * stride + column); }
};
struct BF16Rows {
  const uint16_t* p;
  int64_t stride;
  Ahead ahead;
  F32x16 at(int64_t row, int64_t column) const { return load_bf16(p + row * stride + column); }
};

// out[i][column...] = (Add ? out[i][column...] : 0) + sum over rows first <= r < last of a[i][r] * b[r][column...], for
// Q neighbours i and W vectors from `column`. Rows ascend.
template <int Q, int W, bool Add, class Rows>
inline void multiply(const float* const* a, const Rows& b, int64_t first, int64_t last, int64_t column,
                     float* const* out) {
  F32x16 sum[Q][W];
  for (int i = 0; i < Q; ++i) {
    for (int w = 0; w < W; ++w) {
      sum[i][w] = Add ? load(out[i] + column + 16 * w) : broadcast(0.0f);
    }
  }
  const uint8_t* soon = b.ahead.page + first * b.ahead.row_bytes + column * b.ahead.element_bytes;
  for (int64_t r = first; r < last; ++r) {
    __builtin_prefetch(soon);
    soon += b.ahead.row_bytes;
    for (int w = 0; w < W; ++w) {
      const F32x16 v = b.at(r, column + 16 * w);
      for (int i = 0; i < Q; ++i) {
        sum[i][w] = fma(broadcast(a[i][r]), v, sum[i][w]);
      }
    }
  }
  for (int i = 0; i < Q; ++i) {
    for (int w = 0; w < W; ++w) {
      store(out[i] + column + 16 * w, sum[i][w]);
    }
  }
}

template <int Q, bool Add, class Rows>
inline void multiply_columns(const float* const* a, const Rows& b, int64_t first, int64_t last, int64_t columns,
                             float* const* out) {
  constexpr int kWide = CABOCHON_ACCUMULATORS / Q >= 2 ? 2 : 1;
  int64_t column = 0;
  for (; column + 16 * kWide <= columns; column += 16 * kWide) {
    multiply<Q, kWide, Add>(a, b, first, last, column, out);
  }
  if (column < columns) {
    multiply<Q, 1, Add>(a, b, first, last, column, out);
  }
}

// How many of n queries the next call of multiply_some takes.
inline int64_t block_of(int64_t n) {
  constexpr int64_t kLargest = CABOCHON_ACCUMULATORS >= 24 ? 12 : 6;
  return n >= kLargest ? kLargest : n >= 6 ? 6 : n >= 4 ? 4 : n;
}

template <bool Add, class Rows>
inline void multiply_some(int64_t queries, const float* const* a, const Rows& b, int64_t first, int64_t last,
                          int64_t columns, float* const* out) {
  switch (queries) {
    case 1:
      return multiply_columns<1, Add>(a, b, first, last, columns, out);
    case 2:
      return multiply_columns<2, Add>(a, b, first, last, columns, out);
    case 3:
      return multiply_columns<3, Add>(a, b, first, last, columns, out);
    case 4:
      return multiply_columns<4, Add>(a, b, first, last, columns, out);
    case 6:
      return multiply_columns<6, Add>(a, b, first, last, columns, out);
#if CABOCHON_ACCUMULATORS >= 24
    case 12:
      return multiply_columns<12, Add>(a, b, first, last, columns, out);
#endif
    default:
      return;
  }
}

}  // namespace cabochon::CABOCHON_ISA
