// Integer dot products of sixteen output rows in plain C++. Also the definition the other instruction sets must equal.
//
// Weights are unsigned bytes of `Bits` bits; |activation| <= 127, or <= 32512 where TwoTerms. Sums are exact.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/portable.h"
#include "simd/repeat.h"

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

// Each byte, below 16, as a place in the table.
inline Bytes64 look_up(const uint8_t (&table)[16], Bytes64 a) {
  for (auto& b : a.v) {
    b = table[b];
  }
  return a;
}

inline void store_bytes(uint8_t* p, const Bytes64& a) { std::memcpy(p, a.v, 64); }
// The halves of 32 bytes, as bytes: of each 8 bytes the low halves, then the high ones.
inline Bytes64 load_nibbles(const uint8_t* p) {
  Bytes64 r;
  for (int i = 0; i < 32; ++i) {
    const int at = i / 8 * 16 + i % 8;
    r.v[at] = p[i] & 0x0f;
    r.v[at + 8] = static_cast<uint8_t>(p[i] >> 4);
  }
  return r;
}
inline F32x16 load_u8(const uint8_t* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = static_cast<float>(p[i]);
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

inline constexpr int kTileRows = 4;         // rows of activations that meet a stored slice while it is at hand
inline constexpr int kFewRows = 1;          // rows that meet a block while it is unpacked
inline constexpr int kDirectRows = 1;       // up to here unpacked weights are not worth storing
inline constexpr int kDirectPlainRows = 1;  // the same where hardly anything is to be unpacked (Unit::kPlain)

// A slice in the form the dot product wants.
struct WideSlice {
  int16_t v[4][16];  // [input][row]
};

[[gnu::noinline]] inline WideSlice widen_slice(const Bytes64& a, int offset) {
  uint32_t words[16];  // little-endian: input 0 is the lowest byte
  std::memcpy(words, a.v, sizeof words);
  WideSlice s;
  for (int j = 0; j < 4; ++j) {
    for (int row = 0; row < 16; ++row) {
      s.v[j][row] = static_cast<int16_t>(static_cast<int32_t>(words[row] >> (8 * j) & 255u) - offset);
    }
  }
  return s;
}

// sums[row] += weights * activations.
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

struct PlainDot {
  using Slice = WideSlice;
  struct Sums {
    int32_t v[16];
  };
  // Whether stored slices hold weights with their sign; if not, they are the unsigned bytes.
  static constexpr bool kSigned = true;
  static constexpr int kSliceBytes = sizeof(Slice);
  static Slice widen(const Bytes64& a) { return widen_slice(a, 0); }
  // Stores a slice, of which `offset` is to be subtracted if kSigned.
  static void store(uint8_t* p, const Bytes64& a, int offset) {
    const Slice s = widen_slice(a, offset);
    std::memcpy(p, s.v, sizeof s.v);
  }

  // Sums for one row of activations, of unsigned weights.
  static Sums zero() { return {}; }
  static void add(Sums& sum, const Slice& w, const uint8_t* activations) { add_slice(sum.v, w, activations); }
  static I32x16 total(const Sums& sum) {
    I32x16 r;
    std::memcpy(r.v, sum.v, sizeof r.v);
    return r;
  }

  // Sums over stored slices for R rows of activations, which lie `stride` bytes apart: f(row, sums) for each.
  template <int R, int Slices, class F>
  static void tile(const uint8_t* slices, const uint8_t* activations, int64_t stride, F f) {
    for (int r = 0; r < R; ++r) {
      Sums sum = zero();
      for (int k = 0; k < Slices; ++k) {
        add(sum, reinterpret_cast<const Slice*>(slices)[k], activations + r * stride + 8 * k);
      }
      f(r, total(sum));
    }
  }
};

// Sums over slices of R rows of activations that are bytes, `stride` apart: f(row, sums) for each (kernels/best.h).
struct RoughDot {
  template <int R, int Slices, class F>
  static void tile(const uint8_t* slices, const int8_t* activations, int64_t stride, F f) {
    for (int r = 0; r < R; ++r) {
      I32x16 sum = {};
      for (int k = 0; k < Slices; ++k) {
        const uint8_t* w = slices + 64 * k;
        const int8_t* a = activations + r * stride + 4 * k;
        for (int row = 0; row < 16; ++row) {
          sum.v[row] += w[4 * row] * a[0] + w[4 * row + 1] * a[1] + w[4 * row + 2] * a[2] + w[4 * row + 3] * a[3];
        }
      }
      f(r, sum);
    }
  }
};

// The dot products for activations of one or two terms and weights of `Bits` bits.
template <bool TwoTerms, int Bits>
using Dot = PlainDot;

}  // namespace cabochon::CABOCHON_ISA
