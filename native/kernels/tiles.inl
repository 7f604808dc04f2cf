// How kernels cut any number of rows into tiles whose size the compiler knows.
#pragma once

#include <cstdint>

#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// Calls f with the constant n, 1 <= n <= N.
template <int N, class F>
inline void with_constant(int64_t n, F f) {
  if (n == N) {
    f(Constant<N>{});
  } else if constexpr (N > 1) {
    with_constant<N - 1>(n, f);
  }
}

// Cuts `rows` into as few tiles of at most `most` rows as there can be, of nearly equal size: calls f(first row, rows).
template <class F>
inline void each_tile(int64_t rows, int64_t most, F f) {
  const int64_t tiles = (rows + most - 1) / most;
  int64_t row = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t n = (rows - row) / (tiles - i);
    f(row, n);
    row += n;
  }
}

}  // namespace cabochon::CABOCHON_ISA
