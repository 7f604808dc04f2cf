// The kernels for AVX-512, each instruction spelled out by SIMDe in AVX2: for tests.
#define CABOCHON_ISA avx512_emulated
// Sums of sixteen lanes that fit the registers together with what a sum needs.
#define CABOCHON_ACCUMULATORS 24
#define CABOCHON_EMULATED
#include "simd/avx512_dot.h"
// The kernels are written over what the file above declares.
#include "kernels/attention.inl"
#include "kernels/best.inl"
#include "kernels/kernels.h"
#include "kernels/linear.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avx512_emulated_kernels() {
  static const Kernels kernels{"avx512-emulated", avx512_emulated::linear_kernels(), avx512_emulated::row_kernels(),
                               avx512_emulated::attention_kernels(), avx512_emulated::best_kernels()};
  return kernels;
}

}  // namespace cabochon
