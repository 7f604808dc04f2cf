// Sixteen lanes as one AVX-512 register (F, BW, VL, DQ, VNNI). Same meaning as simd/portable.h.
#pragma once

#ifdef CABOCHON_EMULATED  // the same source over SIMDe, to test this file's logic on machines without AVX-512
#include "simd/simde_gaps.h"
#else
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace cabochon::CABOCHON_ISA {

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct Mask16 {
  __mmask16 v;
};

inline F32x16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline I32x16 broadcast_i32(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
inline __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (n <= 0 ? 0u : (1u << n) - 1u));
}
inline F32x16 load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void store_n(float* p, F32x16 a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
inline void store_i32(int32_t* p, I32x16 a) { _mm512_storeu_si512(p, a.v); }

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Mask16 less(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask16 lanes(int first, int last) {
  return {static_cast<__mmask16>(first_lanes(last) & static_cast<__mmask16>(~first_lanes(first)))};
}
inline F32x16 select(Mask16 m, F32x16 yes, F32x16 no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
inline bool any(Mask16 m) { return m.v != 0; }
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32x16 sqrt(F32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
inline __m512i bits(F32x16 a) { return _mm512_castps_si512(a.v); }
inline F32x16 from_bits(__m512i a) { return {_mm512_castsi512_ps(a)}; }
inline F32x16 abs(F32x16 a) { return from_bits(_mm512_and_si512(bits(a), _mm512_set1_epi32(0x7fffffff))); }
inline F32x16 negate(F32x16 a) { return from_bits(_mm512_xor_si512(bits(a), _mm512_set1_epi32(INT32_MIN))); }
inline F32x16 copysign(F32x16 a, F32x16 b) {
  return from_bits(_mm512_or_si512(bits(abs(a)), _mm512_and_si512(bits(b), _mm512_set1_epi32(INT32_MIN))));
}

inline F32x16 to_f32(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I32x16 round_i32(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
inline I32x16 operator+(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I32x16 operator-(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline F32x16 pow2(I32x16 n) { return from_bits(_mm512_slli_epi32(_mm512_add_epi32(n.v, _mm512_set1_epi32(127)), 23)); }

inline float f16_to_f32(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
inline uint16_t f32_to_f16(float x) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}
inline float bf16_to_f32(uint16_t h) {
  const uint32_t b = static_cast<uint32_t>(h) << 16;
  float r;
  std::memcpy(&r, &b, 4);
  return r;
}
inline uint16_t f32_to_bf16(float x) {
  uint32_t b;
  std::memcpy(&b, &x, 4);
  if ((b & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((b >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
inline F32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F32x16 load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return from_bits(_mm512_slli_epi32(wide, 16));
}
inline F32x16 load_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

inline float tree_sum(F32x16 a) {
  float s[16];
  _mm512_storeu_ps(s, a.v);
  const __m256 eight = _mm256_add_ps(_mm256_loadu_ps(s), _mm256_loadu_ps(s + 8));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float tree_max(F32x16 a) {
  float s[16];
  _mm512_storeu_ps(s, a.v);
  const __m256 eight = _mm256_max_ps(_mm256_loadu_ps(s), _mm256_loadu_ps(s + 8));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace cabochon::CABOCHON_ISA
