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

// Sums over slices of bytes for R rows of activations, `stride` bytes apart: f(row, sums) for each. A row has 4 bytes
// for a slice, `Step` bytes after those for the one before. int16 holds the products of `Together` slices.
template <int R, int Slices, int Together, int Step, class F>
CABOCHON_INLINE inline void sums_in_int16(const uint8_t* slices, const uint8_t* activations, int64_t stride, F f) {
  const __m256i one = _mm256_set1_epi16(1);
  Sums sum[R];
  repeat<Slices / Together>([&](auto part) CABOCHON_INLINE {
    Sums words[R];
    repeat<Together>([&](auto i) CABOCHON_INLINE {
      constexpr int k = Together * part + i;
      const Bytes64 w = load_bytes(slices + 64 * k);
      repeat<R>([&](auto r) CABOCHON_INLINE {
        const __m256i a = broadcast_4_bytes(activations + r * stride + Step * k);
        const __m256i lo = _mm256_maddubs_epi16(w.lo, a), hi = _mm256_maddubs_epi16(w.hi, a);
        if constexpr (i == 0) {
          words[r] = {lo, hi};
        } else {
          accumulate_i16(words[r].lo, lo);
          accumulate_i16(words[r].hi, hi);
        }
      });
    });
    repeat<R>([&](auto r) CABOCHON_INLINE {
      const __m256i lo = _mm256_madd_epi16(words[r].lo, one), hi = _mm256_madd_epi16(words[r].hi, one);
      if constexpr (part == 0) {
        sum[r] = {lo, hi};
      } else {
        sum[r] = {_mm256_add_epi32(sum[r].lo, lo), _mm256_add_epi32(sum[r].hi, hi)};
      }
    });
  });
  repeat<R>([&](auto r) CABOCHON_INLINE { f(r, I32x16{sum[r].lo, sum[r].hi}); });
}

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
    sums_in_int16<R, Slices, (kSlicesInInt16 < Slices ? kSlicesInInt16 : Slices), 8>(slices, activations, stride, f);
  }
};

// int16 holds the products of a whole block: kernels/best.h says why.
struct RoughDot {
  template <int R, int Slices, class F>
  CABOCHON_INLINE static void tile(const uint8_t* slices, const int8_t* activations, int64_t stride, F f) {
    sums_in_int16<R, Slices, Slices, 4>(slices, reinterpret_cast<const uint8_t*>(activations), stride, f);
  }
};

template <bool TwoTerms, int Bits>
using Dot =
    std::conditional_t<TwoTerms || Bits == 8, WideDot<TwoTerms, MultiplyThenAdd>, NarrowDot<(Bits < 4 ? 4 : Bits)>>;

}  // namespace cabochon::CABOCHON_ISA
