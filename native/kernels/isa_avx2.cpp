// The kernels for AVX2, FMA and F16C.
#define CABOCHON_ISA avx2
#include "simd/avx2.h"
// The order matters: each file builds on those before it.
#include "kernels/kernels.h"
#include "kernels/math.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avx2_kernels() {
  static const Kernels kernels{"avx2", {}, avx2::row_kernels(), {}};
  return kernels;
}

}  // namespace cabochon
