// Integer dot products of sixteen output rows with AVX2. Same meaning as simd/portable_dot.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "simd/avx2.h"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

struct Bytes64 {
  __m256i lo, hi;
};
inline Bytes64 load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline Bytes64 operator&(Bytes64 a, uint8_t mask) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
inline Bytes64 operator|(Bytes64 a, Bytes64 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int N>
inline Bytes64 shift(Bytes64 a) {
  if constexpr (N >= 0) {
    return {_mm256_srli_epi16(a.lo, N), _mm256_srli_epi16(a.hi, N)};
  } else {
    return {_mm256_slli_epi16(a.lo, -N), _mm256_slli_epi16(a.hi, -N)};
  }
}

inline void store_bytes(uint8_t* p, Bytes64 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), a.hi);
}
inline __m256i nibbles_of_16_bytes(const uint8_t* p) {
  const __m256i twice = _mm256_permute4x64_epi64(_mm256_castsi128_si256(load_128(p)), 0x50);
  return _mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 4, 0, 4)), _mm256_set1_epi8(0x0f));
}
inline Bytes64 load_nibbles(const uint8_t* p) { return {nibbles_of_16_bytes(p), nibbles_of_16_bytes(p + 16)}; }
inline F32x16 load_u8(const uint8_t* p) {
  const __m128i bytes = load_128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

inline int32_t sum_lanes(I32x16 a) {
  const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_srli_si128(four, 8));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_srli_si128(two, 4)));
}

inline __m256i broadcast_4_bytes(const uint8_t* p) {
  int32_t x;
  std::memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}

// acc + product, now. GCC would rather take all products of a long sum first, in more registers than there are.
inline void accumulate_i32(__m256i& acc, __m256i product) {
  acc = _mm256_add_epi32(acc, product);
  asm("" : "+x"(acc));
}
inline void accumulate_i16(__m256i& acc, __m256i product) {
  acc = _mm256_add_epi16(acc, product);
  asm("" : "+x"(acc));
}

// Of inputs 0-3, two terms: 0, 2 as int16, then 1, 3. One term: 0-3 as int8, then 0, 2 as int16.
template <bool TwoTerms>
inline void store_activations(uint8_t* p, I32x16 q) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(q.lo, q.hi), 0xd8);
  const __m256i order = TwoTerms ? _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                                                    0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15)
                                 : _mm256_setr_epi8(0, 2, 4, 6, 0, 1, 4, 5, 8, 10, 12, 14, 8, 9, 12, 13,  //
                                                    0, 2, 4, 6, 0, 1, 4, 5, 8, 10, 12, 14, 8, 9, 12, 13);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_shuffle_epi8(words, order));
}
template <bool TwoTerms>
inline __m256i even_inputs(const uint8_t* activations) {
  return broadcast_4_bytes(TwoTerms ? activations : activations + 4);
}
template <bool TwoTerms>
inline __m256i odd_inputs(const uint8_t* activations) {
  return TwoTerms ? broadcast_4_bytes(activations + 4) : _mm256_srai_epi16(broadcast_4_bytes(activations), 8);
}

inline constexpr int kTileRows = 6;  // 12 accumulators, 2 vectors of weights, 1 of activations, 1 product
inline constexpr int kFewRows = 4;   // 8 accumulators, and what unpacking needs
inline constexpr int kDirectRows = 8;

// Sums of rows 0-7 and 8-15.
struct Sums {
  __m256i lo, hi;
};

// Weights and activations as int16, by vpmaddwd.
struct WideSlice {
  __m256i even_lo, even_hi, odd_lo, odd_hi;  // inputs (0, 2) and (1, 3) of rows 0-7 and 8-15
};
template <bool TwoTerms>
struct WideDot {
  using Slice = WideSlice;
  static constexpr bool kSigned = true;
  static constexpr int kSliceBytes = 128;
  static Slice widen(Bytes64 a) {
    const __m256i low_byte = _mm256_set1_epi16(0x00ff);
    return {_mm256_and_si256(a.lo, low_byte), _mm256_and_si256(a.hi, low_byte), _mm256_srli_epi16(a.lo, 8),
            _mm256_srli_epi16(a.hi, 8)};
  }
  static void store(uint8_t* p, Bytes64 a, int offset) {
    const Slice s = widen(a);
    const __m256i o = _mm256_set1_epi16(static_cast<int16_t>(offset));
    auto* out = reinterpret_cast<__m256i*>(p);
    _mm256_store_si256(out, _mm256_sub_epi16(s.even_lo, o));
    _mm256_store_si256(out + 1, _mm256_sub_epi16(s.even_hi, o));
    _mm256_store_si256(out + 2, _mm256_sub_epi16(s.odd_lo, o));
    _mm256_store_si256(out + 3, _mm256_sub_epi16(s.odd_hi, o));
  }

  static Sums zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  CABOCHON_INLINE static void add_pairs(Sums& sum, __m256i w_lo, __m256i w_hi, __m256i a) {
    accumulate_i32(sum.lo, _mm256_madd_epi16(w_lo, a));
    accumulate_i32(sum.hi, _mm256_madd_epi16(w_hi, a));
  }
  CABOCHON_INLINE static void add(Sums& sum, const Slice& w, const uint8_t* activations) {
    add_pairs(sum, w.even_lo, w.even_hi, even_inputs<TwoTerms>(activations));
    add_pairs(sum, w.odd_lo, w.odd_hi, odd_inputs<TwoTerms>(activations));
  }
  CABOCHON_INLINE static I32x16 total(const Sums& sum) { return {sum.lo, sum.hi}; }

  template <int R, int Slices, class F>
  CABOCHON_INLINE static void tile(const uint8_t* slices, const uint8_t* activations, int64_t stride, F f) {
    Sums sum[R];
    repeat<Slices>([&](auto k) CABOCHON_INLINE {
      const auto* w = reinterpret_cast<const __m256i*>(slices + k * kSliceBytes);
      const __m256i even_lo = _mm256_load_si256(w), even_hi = _mm256_load_si256(w + 1);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const __m256i a = even_inputs<TwoTerms>(activations + r * stride + 8 * k);
        if constexpr (k == 0) {
          sum[r] = {_mm256_madd_epi16(even_lo, a), _mm256_madd_epi16(even_hi, a)};
        } else {
          add_pairs(sum[r], even_lo, even_hi, a);
        }
      });
      const __m256i odd_lo = _mm256_load_si256(w + 2), odd_hi = _mm256_load_si256(w + 3);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        add_pairs(sum[r], odd_lo, odd_hi, odd_inputs<TwoTerms>(activations + r * stride + 8 * k));
      });
    });
    repeat<R>([&](auto r) CABOCHON_INLINE { f(r, total(sum[r])); });
  }
};

// Weights of up to 6 bits and one-term activations as bytes, by vpmaddubsw: two products are at most 2 * 63 * 127, so
// int16 holds the sum of two slices of 6 bits (32004), four of 5 bits (31496), eight of 4 bits (30480).
template <int Bits>
struct NarrowDot {
  static_assert(Bits >= 4 && Bits <= 6);
  using Slice = Bytes64;
  static constexpr bool kSigned = false;
  static constexpr int kSliceBytes = 64;
  static constexpr int kSlicesInInt16 = 2 << (6 - Bits);
  static Slice widen(Bytes64 a) { return a; }
  static void store(uint8_t* p, Bytes64 a, int) {
    auto* out = reinterpret_cast<__m256i*>(p);
    _mm256_store_si256(out, a.lo);
    _mm256_store_si256(out + 1, a.hi);
  }

  static Sums zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  CABOCHON_INLINE static void add(Sums& sum, const Slice& w, const uint8_t* activations) {
    const __m256i a = broadcast_4_bytes(activations), one = _mm256_set1_epi16(1);
    accumulate_i32(sum.lo, _mm256_madd_epi16(_mm256_maddubs_epi16(w.lo, a), one));
    accumulate_i32(sum.hi, _mm256_madd_epi16(_mm256_maddubs_epi16(w.hi, a), one));
  }
  CABOCHON_INLINE static I32x16 total(const Sums& sum) { return {sum.lo, sum.hi}; }

  template <int R, int Slices, class F>
  CABOCHON_INLINE static void tile(const uint8_t* slices, const uint8_t* activations, int64_t stride, F f) {
    constexpr int kTogether = kSlicesInInt16 < Slices ? kSlicesInInt16 : Slices;
    Sums sum[R];
    repeat<Slices / kTogether>([&](auto part) CABOCHON_INLINE {
      Sums words[R];
      repeat<kTogether>([&](auto i) CABOCHON_INLINE {
        constexpr int k = kTogether * part + i;
        const auto* w = reinterpret_cast<const __m256i*>(slices + k * kSliceBytes);
        const __m256i w_lo = _mm256_load_si256(w), w_hi = _mm256_load_si256(w + 1);
        repeat<R>([&](auto r) CABOCHON_INLINE {
          const __m256i a = broadcast_4_bytes(activations + r * stride + 8 * k);
          const __m256i lo = _mm256_maddubs_epi16(w_lo, a), hi = _mm256_maddubs_epi16(w_hi, a);
          if constexpr (i == 0) {
            words[r] = {lo, hi};
          } else {
            accumulate_i16(words[r].lo, lo);
            accumulate_i16(words[r].hi, hi);
          }
        });
      });
      const __m256i one = _mm256_set1_epi16(1);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const __m256i lo = _mm256_madd_epi16(words[r].lo, one), hi = _mm256_madd_epi16(words[r].hi, one);
        if constexpr (part == 0) {
          sum[r] = {lo, hi};
        } else {
          sum[r] = {_mm256_add_epi32(sum[r].lo, lo), _mm256_add_epi32(sum[r].hi, hi)};
        }
      });
    });
    repeat<R>([&](auto r) CABOCHON_INLINE { f(r, total(sum[r])); });
  }
};

template <bool TwoTerms, int Bits>
struct Dot : WideDot<TwoTerms> {};
template <>
struct Dot<false, 4> : NarrowDot<4> {};
template <>
struct Dot<false, 5> : NarrowDot<5> {};
template <>
struct Dot<false, 6> : NarrowDot<6> {};

}  // namespace cabochon::CABOCHON_ISA
