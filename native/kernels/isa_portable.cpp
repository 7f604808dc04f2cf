// The kernels for every machine.
#define CABOCHON_ISA portable
// Sums of sixteen lanes that fit the registers together with what a sum needs.
#define CABOCHON_ACCUMULATORS 6
#include "simd/portable_dot.h"
// The kernels are written over what the file above declares.
#include "kernels/attention.inl"
#include "kernels/best.inl"
#include "kernels/kernels.h"
#include "kernels/linear.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& portable_kernels() {
  static const Kernels kernels{"portable", portable::linear_kernels(), portable::row_kernels(),
                               portable::attention_kernels(), portable::best_kernels()};
  return kernels;
}

}  // namespace cabochon
