// The kernels for AVX2, FMA and F16C with AVX-VNNI.
#define CABOCHON_ISA avxvnni
// Sums of sixteen lanes that fit the registers together with what a sum needs.
#define CABOCHON_ACCUMULATORS 6
#include "simd/avxvnni_dot.h"
// The kernels are written over what the file above declares.
#include "kernels/attention.inl"
#include "kernels/best.inl"
#include "kernels/kernels.h"
#include "kernels/linear.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avxvnni_kernels() {
  static const Kernels kernels{"avxvnni", avxvnni::linear_kernels(), avxvnni::row_kernels(),
                               avxvnni::attention_kernels(), avxvnni::best_kernels()};
  return kernels;
}

}  // namespace cabochon
