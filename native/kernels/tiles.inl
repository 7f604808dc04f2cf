// How kernels cut any number of rows into tiles whose size the compiler knows.
#pragma once

#include <cstdint>

#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// Calls f with the constant n, Least <= n <= Most.
template <int Least, int Most, class F>
inline void with_constant(int64_t n, F f) {
  if (n == Most) {
    f(Constant<Most>{});
  } else if constexpr (Most > Least) {
    with_constant<Least, Most - 1>(n, f);
  }
}

inline int64_t tiles_of(int64_t rows, int64_t most) { return (rows + most - 1) / most; }

// Cuts `rows` into as few tiles of at most `most` rows as there can be, of nearly equal size: calls f(first row, rows).
template <class F>
inline void each_tile(int64_t rows, int64_t most, F f) {
  const int64_t tiles = tiles_of(rows, most);
  int64_t row = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t n = (rows - row) / (tiles - i);
    f(row, n);
    row += n;
  }
}

// The smallest tile that each_tile makes of `rows` rows or more.
constexpr int least_tile(int rows, int most) {
  int least = most;
  for (int n = rows; n <= rows + most * most; ++n) {
    const int of_n = n / ((n + most - 1) / most);
    least = of_n < least ? of_n : least;
  }
  return least;
}

}  // namespace cabochon::CABOCHON_ISA
