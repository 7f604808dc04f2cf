// The kernels for AVX-512, each instruction spelled out by SIMDe in AVX2: for tests.
#define CABOCHON_ISA avx512_emulated
#define CABOCHON_EMULATED
#include "simd/avx512.h"
// The order matters: each file builds on those before it.
#include "kernels/kernels.h"
#include "kernels/math.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avx512_emulated_kernels() {
  static const Kernels kernels{"avx512-emulated", {}, avx512_emulated::row_kernels(), {}};
  return kernels;
}

}  // namespace cabochon
