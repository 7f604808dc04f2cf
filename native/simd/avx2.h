// Sixteen lanes as two AVX2 registers (with FMA and F16C). Same meaning as simd/portable.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace cabochon::CABOCHON_ISA {

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct Mask16 {
  __m256 lo, hi;
};

inline F32x16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline I32x16 broadcast_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline __m256i index_mask(int first, int last, int base) {
  const __m256i i = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(base));
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), i),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(last), i));
}
inline F32x16 load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, index_mask(0, n, 0)), _mm256_maskload_ps(p + 8, index_mask(0, n, 8))};
}
inline void store_n(float* p, F32x16 a, int n) {
  _mm256_maskstore_ps(p, index_mask(0, n, 0), a.lo);
  _mm256_maskstore_ps(p + 8, index_mask(0, n, 8), a.hi);
}
inline void store_i32(int32_t* p, I32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline F32x16 sqrt(F32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline F32x16 abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline F32x16 negate(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(sign, a.lo), _mm256_xor_ps(sign, a.hi)};
}
inline F32x16 copysign(F32x16 a, F32x16 b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(sign, a.lo), _mm256_and_ps(sign, b.lo)),
          _mm256_or_ps(_mm256_andnot_ps(sign, a.hi), _mm256_and_ps(sign, b.hi))};
}

inline Mask16 less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask16 lanes(int first, int last) {
  return {_mm256_castsi256_ps(index_mask(first, last, 0)), _mm256_castsi256_ps(index_mask(first, last, 8))};
}
inline F32x16 select(Mask16 m, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

inline F32x16 to_f32(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline I32x16 round_i32(F32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline I32x16 operator+(I32x16 a, I32x16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline I32x16 operator-(I32x16 a, I32x16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline F32x16 pow2(I32x16 n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.lo, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.hi, bias), 23))};
}

inline float f16_to_f32(uint16_t h) { return _cvtsh_ss(h); }
inline uint16_t f32_to_f16(float x) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}
inline float bf16_to_f32(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float r;
  std::memcpy(&r, &bits, 4);
  return r;
}
inline uint16_t f32_to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline F32x16 load_f16(const uint16_t* p) { return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))}; }
inline F32x16 load_bf16(const uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p + 8)), 16))};
}
inline F32x16 load_i8(const int8_t* p) {
  const __m128i bytes = load_128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

inline float tree_sum(F32x16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float tree_max(F32x16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// ---- Integer dot products -------------------------------------------------------------------------------------
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
inline Bytes64 shift_right(Bytes64 a) {
  return {_mm256_srli_epi16(a.lo, N), _mm256_srli_epi16(a.hi, N)};
}
template <int N>
inline Bytes64 shift_left(Bytes64 a) {
  return {_mm256_slli_epi16(a.lo, N), _mm256_slli_epi16(a.hi, N)};
}

// As int16: inputs (0, 2) and (1, 3) of rows 0-7 and 8-15, the pairs that vpmaddwd adds.
struct Slice {
  __m256i even_lo, odd_lo, even_hi, odd_hi;
};
inline Slice widen(Bytes64 a) {
  const __m256i low_byte = _mm256_set1_epi16(0x00ff);
  return {_mm256_and_si256(a.lo, low_byte), _mm256_srli_epi16(a.lo, 8), _mm256_and_si256(a.hi, low_byte),
          _mm256_srli_epi16(a.hi, 8)};
}
inline constexpr int kSliceBytes = 128;
inline void store_slice(uint8_t* p, const Slice& s) {
  auto* out = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(out, s.even_lo);
  _mm256_storeu_si256(out + 1, s.odd_lo);
  _mm256_storeu_si256(out + 2, s.even_hi);
  _mm256_storeu_si256(out + 3, s.odd_hi);
}
inline Slice load_slice(const uint8_t* p) {
  const auto* in = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(in), _mm256_loadu_si256(in + 1), _mm256_loadu_si256(in + 2), _mm256_loadu_si256(in + 3)};
}

inline constexpr int kActivationBytes = 8;
inline void encode_activations(uint8_t* p, const int32_t* q) {
  const int16_t values[4] = {static_cast<int16_t>(q[0]), static_cast<int16_t>(q[2]), static_cast<int16_t>(q[1]),
                             static_cast<int16_t>(q[3])};
  std::memcpy(p, values, 8);
}

template <bool TwoTerms>
struct DotSum {
  __m256i lo = _mm256_setzero_si256(), hi = _mm256_setzero_si256();
  void add(const Slice& w, const uint8_t* activations) {
    int32_t pairs[2];
    std::memcpy(pairs, activations, 8);
    const __m256i even = _mm256_set1_epi32(pairs[0]), odd = _mm256_set1_epi32(pairs[1]);
    lo = _mm256_add_epi32(lo, _mm256_madd_epi16(w.even_lo, even));
    hi = _mm256_add_epi32(hi, _mm256_madd_epi16(w.even_hi, even));
    lo = _mm256_add_epi32(lo, _mm256_madd_epi16(w.odd_lo, odd));
    hi = _mm256_add_epi32(hi, _mm256_madd_epi16(w.odd_hi, odd));
  }
  I32x16 total() const { return {lo, hi}; }
};

}  // namespace cabochon::CABOCHON_ISA
