// Dot products over int16, for AVX2 with and without VNNI.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "simd/avx2_bytes.h"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// Weights and activations as int16. Pairs::add(sum, a, b) adds the products of neighbouring int16 to 32 bits.
struct WideSlice {
  __m256i even_lo, even_hi, odd_lo, odd_hi;  // inputs (0, 2) and (1, 3) of rows 0-7 and 8-15
};
template <bool TwoTerms, class Pairs>
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
    Pairs::add(sum.lo, w_lo, a);
    Pairs::add(sum.hi, w_hi, a);
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

}  // namespace cabochon::CABOCHON_ISA
