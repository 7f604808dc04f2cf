// The kernels for AVX2, FMA and F16C with AVX-VNNI, whose instructions AVX2 spells out: for tests.
#define CABOCHON_ISA avxvnni_emulated
// Sums of sixteen lanes that fit the registers together with what a sum needs.
#define CABOCHON_ACCUMULATORS 6
#define CABOCHON_EMULATED
#include "simd/avxvnni_dot.h"
// The kernels are written over what the file above declares.
#include "kernels/attention.inl"
#include "kernels/best.inl"
#include "kernels/kernels.h"
#include "kernels/linear.inl"
#include "kernels/rows.inl"

namespace cabochon {

const Kernels& avxvnni_emulated_kernels() {
  static const Kernels kernels{"avxvnni-emulated", avxvnni_emulated::linear_kernels(), avxvnni_emulated::row_kernels(),
                               avxvnni_emulated::attention_kernels(), avxvnni_emulated::best_kernels()};
  return kernels;
}

}  // namespace cabochon
