// The kernels for AVX-512 with VNNI.
#define CABOCHON_ISA avx512
// Sums of sixteen lanes that fit the registers together with what a sum needs.
#define CABOCHON_ACCUMULATORS 24
#include "simd/avx512_dot.h"
// The kernels are written over what the file above declares.
#include "kernels/attention.inl"
#include "kernels/best.inl"
#include "kernels/kernels.h"
#include "kernels/linear.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avx512_kernels() {
  static const Kernels kernels{"avx512", avx512::linear_kernels(), avx512::row_kernels(), avx512::attention_kernels(),
                               avx512::best_kernels()};
  return kernels;
}

}  // namespace cabochon
