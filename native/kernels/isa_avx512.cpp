// The kernels for AVX-512 with VNNI.
#define CABOCHON_ISA avx512
#include "simd/avx512.h"
// The order matters: each file builds on those before it.
#include "kernels/kernels.h"
#include "kernels/math.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avx512_kernels() {
  static const Kernels kernels{"avx512", {}, avx512::row_kernels(), {}};
  return kernels;
}

}  // namespace cabochon
