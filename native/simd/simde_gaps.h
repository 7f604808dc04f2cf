// The AVX-512 instructions this project uses that SIMDe does not spell out, lane by lane. For tests only.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <cstdint>
#include <cstring>

namespace cabochon::CABOCHON_ISA::gaps {

// Two halves of a 512-bit register, each converted by an instruction that AVX2 has.
template <class Whole, class Half>
inline Whole join(Half lo, Half hi) {
  static_assert(sizeof(Whole) == 2 * sizeof(Half));
  const Half halves[2] = {lo, hi};
  Whole whole;
  std::memcpy(&whole, halves, sizeof whole);
  return whole;
}
template <class Half, class Whole>
inline Half part(const Whole& whole, int i) {
  Half half;
  std::memcpy(&half, reinterpret_cast<const char*>(&whole) + i * sizeof half, sizeof half);
  return half;
}

inline __m512 cvtepi32_ps(__m512i a) {
  return join<__m512>(_mm256_cvtepi32_ps(part<__m256i>(a, 0)), _mm256_cvtepi32_ps(part<__m256i>(a, 1)));
}
inline __m512i cvtps_epi32(__m512 a) {
  return join<__m512i>(_mm256_cvtps_epi32(part<__m256>(a, 0)), _mm256_cvtps_epi32(part<__m256>(a, 1)));
}
inline __m512i cvtepi8_epi32(__m128i a) {
  return join<__m512i>(_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)));
}
inline __m512i cvtepu8_epi32(__m128i a) {
  return join<__m512i>(_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8)));
}
inline __m512i cvtepu16_epi32(__m256i a) {
  return join<__m512i>(_mm256_cvtepu16_epi32(part<__m128i>(a, 0)), _mm256_cvtepu16_epi32(part<__m128i>(a, 1)));
}
inline __m512 cvtph_ps(__m256i a) {
  return join<__m512>(_mm256_cvtph_ps(part<__m128i>(a, 0)), _mm256_cvtph_ps(part<__m128i>(a, 1)));
}
inline __m512i srai_epi32(__m512i a, int n) {
  return join<__m512i>(_mm256_srai_epi32(part<__m256i>(a, 0), n), _mm256_srai_epi32(part<__m256i>(a, 1), n));
}
inline __m512 maskz_loadu_ps(__mmask16 mask, const float* p) {
  float lane[16] = {};
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) {
      lane[i] = p[i];
    }
  }
  return _mm512_loadu_ps(lane);
}
inline void mask_storeu_ps(float* p, __mmask16 mask, __m512 a) {
  float lane[16];
  _mm512_storeu_ps(lane, a);
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) {
      p[i] = lane[i];
    }
  }
}

}  // namespace cabochon::CABOCHON_ISA::gaps

#define _mm512_cvtepi32_ps gaps::cvtepi32_ps
#define _mm512_cvtps_epi32 gaps::cvtps_epi32
#define _mm512_cvtepi8_epi32 gaps::cvtepi8_epi32
#define _mm512_cvtepu8_epi32 gaps::cvtepu8_epi32
#define _mm512_cvtepu16_epi32 gaps::cvtepu16_epi32
#define _mm512_cvtph_ps gaps::cvtph_ps
#define _mm512_srai_epi32 gaps::srai_epi32
#define _mm512_maskz_loadu_ps gaps::maskz_loadu_ps
#define _mm512_mask_storeu_ps gaps::mask_storeu_ps
