// Slices and quantised activations in AVX2 registers. Same meaning as simd/portable_dot.h.
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

inline Bytes64 look_up(const uint8_t (&table)[16], Bytes64 a) {
  const __m256i t = _mm256_broadcastsi128_si256(load_128(table));
  return {_mm256_shuffle_epi8(t, a.lo), _mm256_shuffle_epi8(t, a.hi)};
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
inline constexpr int kDirectRows = 8, kDirectPlainRows = 32;

// Sums of rows 0-7 and 8-15.
struct Sums {
  __m256i lo, hi;
};

}  // namespace cabochon::CABOCHON_ISA
