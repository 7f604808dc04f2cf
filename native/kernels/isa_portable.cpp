// The kernels for every machine.
#define CABOCHON_ISA portable
#include "simd/portable.h"
// The order matters: each file builds on those before it.
#include "kernels/kernels.h"
#include "kernels/math.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& portable_kernels() {
  static const Kernels kernels{"portable", {}, portable::row_kernels(), {}};
  return kernels;
}

}  // namespace cabochon
