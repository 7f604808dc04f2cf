// Integer dot products of sixteen output rows with AVX2 and AVX-VNNI. Same meaning as simd/portable_dot.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "simd/avx2_bytes.h"
#include "simd/avx2_wide_dot.h"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// The two instructions that AVX-VNNI has more than AVX2: acc + products of two int16, or of four bytes of which w's
// have no sign. Neither saturates.
#ifdef CABOCHON_EMULATED
inline __m256i add_pairs_of_i16(__m256i acc, __m256i a, __m256i b) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}
inline __m256i add_fours_of_bytes(__m256i acc, __m256i w, __m256i a) {
  const __m256i low_byte = _mm256_set1_epi16(0x00ff);
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(w, low_byte), _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(a, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}
#else
inline __m256i add_pairs_of_i16(__m256i acc, __m256i a, __m256i b) { return _mm256_dpwssd_avx_epi32(acc, a, b); }
inline __m256i add_fours_of_bytes(__m256i acc, __m256i w, __m256i a) { return _mm256_dpbusd_avx_epi32(acc, w, a); }
#endif

struct MultiplyAndAdd {
  CABOCHON_INLINE static void add(__m256i& acc, __m256i a, __m256i b) { acc = add_pairs_of_i16(acc, a, b); }
};

// One-term activations and weights as bytes.
struct ByteDot {
  using Slice = Bytes64;
  static constexpr bool kSigned = false;
  static constexpr int kSliceBytes = 64;
  static Slice widen(Bytes64 a) { return a; }
  static void store(uint8_t* p, Bytes64 a, int) { store_bytes(p, a); }

  static Sums zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  CABOCHON_INLINE static void add(Sums& sum, const Slice& w, const uint8_t* activations) {
    const __m256i a = broadcast_4_bytes(activations);
    sum.lo = add_fours_of_bytes(sum.lo, w.lo, a);
    sum.hi = add_fours_of_bytes(sum.hi, w.hi, a);
  }
  CABOCHON_INLINE static I32x16 total(const Sums& sum) { return {sum.lo, sum.hi}; }

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
    Sums sum[R];
    repeat<R>([&](auto r) CABOCHON_INLINE { sum[r] = ByteDot::zero(); });
    repeat<Slices>([&](auto k) CABOCHON_INLINE {
      const Bytes64 w = load_bytes(slices + 64 * k);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const __m256i a = broadcast_4_bytes(reinterpret_cast<const uint8_t*>(activations + r * stride + 4 * k));
        sum[r] = {add_fours_of_bytes(sum[r].lo, w.lo, a), add_fours_of_bytes(sum[r].hi, w.hi, a)};
      });
    });
    repeat<R>([&](auto r) CABOCHON_INLINE { f(r, I32x16{sum[r].lo, sum[r].hi}); });
  }
};

template <bool TwoTerms, int Bits>
using Dot = std::conditional_t<TwoTerms, WideDot<true, MultiplyAndAdd>, ByteDot>;

}  // namespace cabochon::CABOCHON_ISA
