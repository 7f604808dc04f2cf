// The kernels for AVX2, FMA and F16C.
#define CABOCHON_ISA avx2
// Sums of sixteen lanes that fit the registers together with what a sum needs.
#define CABOCHON_ACCUMULATORS 6
#include "simd/avx2_dot.h"
// The kernels are written over what the file above declares.
#include "kernels/attention.inl"
#include "kernels/best.inl"
#include "kernels/kernels.h"
#include "kernels/linear.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avx2_kernels() {
  static const Kernels kernels{"avx2", avx2::linear_kernels(), avx2::row_kernels(), avx2::attention_kernels(),
                               avx2::best_kernels()};
  return kernels;
}

}  // namespace cabochon
