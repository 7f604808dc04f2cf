// Integer dot products of sixteen output rows with AVX-512 VNNI. Same meaning as simd/portable_dot.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/avx512.h"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

struct Bytes64 {
  __m512i v;
};
inline Bytes64 load_bytes(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline Bytes64 operator&(Bytes64 a, uint8_t mask) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(static_cast<char>(mask)))};
}
inline Bytes64 operator|(Bytes64 a, Bytes64 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int N>
inline Bytes64 shift(Bytes64 a) {
  if constexpr (N >= 0) {
    return {_mm512_srli_epi16(a.v, N)};
  } else {
    return {_mm512_slli_epi16(a.v, -N)};
  }
}

inline Bytes64 look_up(const uint8_t (&table)[16], Bytes64 a) {
  const __m512i t = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(t, a.v)};
}

inline void store_bytes(uint8_t* p, Bytes64 a) { _mm512_storeu_si512(p, a.v); }
inline Bytes64 load_nibbles(const uint8_t* p) {
  const __m512i bytes = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), bytes);
  const __m512i nibbles = _mm512_srlv_epi64(twice, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4));
  return {_mm512_and_si512(nibbles, _mm512_set1_epi8(0x0f))};
}
inline F32x16 load_u8(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

inline int32_t sum_lanes(I32x16 a) {
  int32_t s[16];
  store_i32(s, a);
  const __m256i eight = _mm256_add_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(s)),
                                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(s + 8)));
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_srli_si128(four, 8));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_srli_si128(two, 4)));
}

// q = 256 * hi + lo, both int8: of inputs 0-3 four hi, then four lo.
template <bool TwoTerms>
inline void store_activations(uint8_t* p, I32x16 q) {
  const __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(q.v, _mm512_set1_epi32(128)), 8);
  // In each 128-bit lane: the low bytes of the four lanes of hi, then of q. 0x80 gives zero.
  const __m512i hi_first =
      _mm512_set4_epi32(INT32_C(-2139062144), INT32_C(-2139062144), INT32_C(-2139062144), 0x0c080400);
  const __m512i lo_next =
      _mm512_set4_epi32(INT32_C(-2139062144), INT32_C(-2139062144), 0x0c080400, INT32_C(-2139062144));
  const __m512i bytes = _mm512_or_si512(_mm512_shuffle_epi8(hi, hi_first), _mm512_shuffle_epi8(q.v, lo_next));
  const __m512i together = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6), bytes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(together));
}
inline __m512i broadcast_4_bytes(const uint8_t* p) {
  int32_t x;
  std::memcpy(&x, p, 4);
  return _mm512_set1_epi32(x);
}

#ifdef CABOCHON_EMULATED  // emulated code is large: keep it short
inline constexpr int kTileRows = 3, kFewRows = 2, kDirectRows = 3, kDirectPlainRows = 3;
#else
inline constexpr int kTileRows = 8, kFewRows = 4, kDirectRows = 8, kDirectPlainRows = 8;
#endif

template <bool TwoTerms>
struct ByteDot {
  using Slice = Bytes64;  // vpdpbusd takes unsigned bytes as they are
  struct Sums {
    __m512i hi, lo;
  };
  static constexpr bool kSigned = false;
  static constexpr int kSliceBytes = 64;
  static Slice widen(Bytes64 a) { return a; }
  static void store(uint8_t* p, Bytes64 a, int) { _mm512_storeu_si512(p, a.v); }

  static Sums zero() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
  CABOCHON_INLINE static void add(Sums& sum, const Slice& w, const uint8_t* activations) {
    if constexpr (TwoTerms) {
      sum.hi = _mm512_dpbusd_epi32(sum.hi, w.v, broadcast_4_bytes(activations));
    }
    sum.lo = _mm512_dpbusd_epi32(sum.lo, w.v, broadcast_4_bytes(activations + 4));
  }
  CABOCHON_INLINE static I32x16 total(const Sums& sum) {
    if constexpr (TwoTerms) {
      return {_mm512_add_epi32(_mm512_slli_epi32(sum.hi, 8), sum.lo)};
    }
    return {sum.lo};
  }

  template <int R, int Slices, class F>
  CABOCHON_INLINE static void tile(const uint8_t* slices, const uint8_t* activations, int64_t stride, F f) {
    Sums sum[R];
    repeat<R>([&](auto r) CABOCHON_INLINE { sum[r] = zero(); });
    repeat<Slices>([&](auto k) CABOCHON_INLINE {
      const Slice w = load_bytes(slices + k * kSliceBytes);
      repeat<R>([&](auto r) CABOCHON_INLINE { add(sum[r], w, activations + r * stride + 8 * k); });
    });
    repeat<R>([&](auto r) CABOCHON_INLINE { f(r, total(sum[r])); });
  }
};

// Bytes as they come, for kernels/best.h.
struct RoughDot {
  template <int R, int Slices, class F>
  CABOCHON_INLINE static void tile(const uint8_t* slices, const int8_t* activations, int64_t stride, F f) {
    __m512i sum[R];
    repeat<R>([&](auto r) CABOCHON_INLINE { sum[r] = _mm512_setzero_si512(); });
    repeat<Slices>([&](auto k) CABOCHON_INLINE {
      const Bytes64 w = load_bytes(slices + 64 * k);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const auto* four = reinterpret_cast<const uint8_t*>(activations + r * stride + 4 * k);
        sum[r] = _mm512_dpbusd_epi32(sum[r], w.v, broadcast_4_bytes(four));
      });
    });
    repeat<R>([&](auto r) CABOCHON_INLINE { f(r, I32x16{sum[r]}); });
  }
};

template <bool TwoTerms, int Bits>
using Dot = ByteDot<TwoTerms>;

}  // namespace cabochon::CABOCHON_ISA
