// Loops that the compiler surely unrolls, so that arrays indexed by their counter become registers.
#pragma once

namespace cabochon::CABOCHON_ISA {

template <int N>
struct Constant {
  static constexpr int value = N;
  constexpr operator int() const { return N; }
};

// f(Constant<0>), ..., f(Constant<N - 1>). Write f as [&](auto i) CABOCHON_INLINE { ... }.
#define CABOCHON_INLINE __attribute__((always_inline))
template <int N, class F>
CABOCHON_INLINE inline void repeat(F&& f) {
  if constexpr (N > 0) {
    repeat<N - 1>(f);
    f(Constant<N - 1>{});
  }
}

}  // namespace cabochon::CABOCHON_ISA
