// Integer dot products of sixteen output rows in plain C++. Also the definition the other instruction sets must equal.
//
// Weights are unsigned bytes of `Bits` bits; |activation| <= 127, or <= 32512 where TwoTerms. Sums are exact.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/portable.h"

namespace cabochon::CABOCHON_ISA {

// Sixty-four unsigned bytes: 16 output rows, 4 inputs each, [row][input]. This is a slice.
struct Bytes64 {
  uint8_t v[64];
};
inline Bytes64 load_bytes(const uint8_t* p) {
  Bytes64 r;
  std::memcpy(r.v, p, 64);
  return r;
}
inline Bytes64 operator&(Bytes64 a, uint8_t mask) {
  for (auto& b : a.v) {
    b = b & mask;
  }
  return a;
}
inline Bytes64 operator|(Bytes64 a, Bytes64 b) {
  for (int i = 0; i < 64; ++i) {
    a.v[i] = a.v[i] | b.v[i];
  }
  return a;
}
// Shifts of each byte, right for N > 0 and left for N < 0. Bits that leave a byte are lost here, but on other
// instruction sets may enter its neighbour: always mask with & afterwards.
template <int N>
inline Bytes64 shift(Bytes64 a) {
  for (auto& b : a.v) {
    b = static_cast<uint8_t>(N >= 0 ? b >> (N >= 0 ? N : 0) : b << (N < 0 ? -N : 0));
  }
  return a;
}

// Sixteen small unsigned integers, one per lane.
struct Bytes16 {
  uint8_t v[16];
};
inline Bytes16 load_bytes16(const uint8_t* p) {
  Bytes16 r;
  std::memcpy(r.v, p, 16);
  return r;
}
// Lanes 0-7 are the low halves of 8 bytes, lanes 8-15 the high halves.
inline Bytes16 load_nibbles16(const uint8_t* p) {
  Bytes16 r;
  for (int i = 0; i < 8; ++i) {
    r.v[i] = p[i] & 0x0f;
    r.v[i + 8] = static_cast<uint8_t>(p[i] >> 4);
  }
  return r;
}
inline Bytes16 operator&(Bytes16 a, uint8_t mask) {
  for (auto& b : a.v) {
    b = b & mask;
  }
  return a;
}
inline Bytes16 operator|(Bytes16 a, Bytes16 b) {
  for (int i = 0; i < 16; ++i) {
    a.v[i] = a.v[i] | b.v[i];
  }
  return a;
}
template <int N>
inline Bytes16 shift(Bytes16 a) {
  for (auto& b : a.v) {
    b = static_cast<uint8_t>(N >= 0 ? b >> (N >= 0 ? N : 0) : b << (N < 0 ? -N : 0));
  }
  return a;
}
inline F32x16 to_f32(Bytes16 a) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = static_cast<float>(a.v[i]);
  }
  return r;
}

inline int32_t sum_lanes(I32x16 a) {
  int32_t s = 0;
  for (int32_t x : a.v) {
    s += x;
  }
  return s;
}

// Sixteen quantised activations as 32 bytes, 8 for each 4, in an order of the instruction set's own.
template <bool TwoTerms>
inline void store_activations(uint8_t* p, I32x16 q) {
  for (int j = 0; j < 16; ++j) {
    const auto value = static_cast<int16_t>(q.v[j]);
    std::memcpy(p + 2 * j, &value, 2);
  }
}

inline constexpr int kTileRows = 4;  // rows of activations that meet a slice while it is at hand
inline constexpr int kFewRows = 1;   // up to here unpacked weights are not worth storing

// A slice in the form the dot product wants.
struct WideSlice {
  int16_t v[4][16];  // [input][row]
};

// sums[row] += weights * activations. Out of line: compilers unroll it into thousands of instructions.
[[gnu::noinline]] inline void add_slice(int32_t* sums, const WideSlice& w, const uint8_t* activations) {
  int16_t a[4];
  std::memcpy(a, activations, 8);
  int32_t total[16];
  std::memcpy(total, sums, sizeof total);
  for (int j = 0; j < 4; ++j) {
    for (int row = 0; row < 16; ++row) {
      total[row] += w.v[j][row] * a[j];
    }
  }
  std::memcpy(sums, total, sizeof total);
}

struct WideDot {
  using Slice = WideSlice;
  static constexpr int kSliceBytes = sizeof(Slice);
  [[gnu::noinline]] static Slice widen(const Bytes64& a) {
    Slice s;
    for (int j = 0; j < 4; ++j) {
      for (int row = 0; row < 16; ++row) {
        s.v[j][row] = a.v[4 * row + j];
      }
    }
    return s;
  }
  static void store(uint8_t* p, const Slice& s) { std::memcpy(p, s.v, sizeof s.v); }

  // Sums for one row of activations.
  struct Sum {
    int32_t v[16] = {};
    void add(const Slice& w, const uint8_t* activations) { add_slice(v, w, activations); }
    I32x16 total() const {
      I32x16 r;
      std::memcpy(r.v, v, sizeof v);
      return r;
    }
  };

  // Sums for R rows of activations, which lie `stride` bytes apart.
  template <int R>
  struct Tile {
    Sum sum[R];
    // Adds four stored slices, 16 inputs.
    void add_half(const uint8_t* slices, const uint8_t* activations, int64_t stride) {
      for (int k = 0; k < 4; ++k) {
        Slice w;
        std::memcpy(w.v, slices + k * kSliceBytes, sizeof w.v);
        for (int r = 0; r < R; ++r) {
          sum[r].add(w, activations + r * stride + 8 * k);
        }
      }
    }
    I32x16 total(int r) const { return sum[r].total(); }
  };
};

template <bool TwoTerms, int Bits>
struct Dot : WideDot {};

}  // namespace cabochon::CABOCHON_ISA
