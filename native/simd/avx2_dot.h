// Integer dot products of sixteen output rows with AVX2. Same meaning as simd/portable_dot.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "simd/avx2_bytes.h"
#include "simd/avx2_wide_dot.h"
#include "simd/repeat.h"

namespace cabochon::CABOCHON_ISA {

// acc + product, now. GCC would rather take all products of a long sum first, in more registers than there are.
inline void accumulate_i32(__m256i& acc, __m256i product) {
  acc = _mm256_add_epi32(acc, product);
  asm("" : "+x"(acc));
}
inline void accumulate_i16(__m256i& acc, __m256i product) {
  acc = _mm256_add_epi16(acc, product);
  asm("" : "+x"(acc));
}

struct MultiplyThenAdd {
  CABOCHON_INLINE static void add(__m256i& acc, __m256i a, __m256i b) { accumulate_i32(acc, _mm256_madd_epi16(a, b)); }
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

// All products of an input pair in one int16 (kernels/best.h says why they fit), so half the sums of NarrowDot.
struct RoughDot {
  template <int R, int Slices, class F>
  CABOCHON_INLINE static void tile(const uint8_t* slices, const int8_t* activations, int64_t stride, F f) {
    Sums words[R];
    repeat<Slices>([&](auto k) CABOCHON_INLINE {
      const Bytes64 w = load_bytes(slices + 64 * k);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const __m256i a = broadcast_4_bytes(reinterpret_cast<const uint8_t*>(activations + r * stride + 4 * k));
        const __m256i lo = _mm256_maddubs_epi16(w.lo, a), hi = _mm256_maddubs_epi16(w.hi, a);
        if constexpr (k == 0) {
          words[r] = {lo, hi};
        } else {
          accumulate_i16(words[r].lo, lo);
          accumulate_i16(words[r].hi, hi);
        }
      });
    });
    const __m256i one = _mm256_set1_epi16(1);
    repeat<R>([&](auto r) CABOCHON_INLINE {
      f(r, I32x16{_mm256_madd_epi16(words[r].lo, one), _mm256_madd_epi16(words[r].hi, one)});
    });
  }
};

template <bool TwoTerms, int Bits>
using Dot =
    std::conditional_t<TwoTerms || Bits == 8, WideDot<TwoTerms, MultiplyThenAdd>, NarrowDot<(Bits < 4 ? 4 : Bits)>>;

}  // namespace cabochon::CABOCHON_ISA
