#include "kernels/choose.h"

namespace cabochon {

const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> found;
#ifdef CABOCHON_HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni")) {
      found.push_back(&avx512_kernels());
    }
#endif
#if defined(CABOCHON_HAVE_AVX2) || defined(CABOCHON_HAVE_AVX512_EMULATED)
    // Every CPU that has AVX2 has F16C, which not every compiler can ask for.
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#ifdef CABOCHON_HAVE_AVX2
    if (avx2) {
      found.push_back(&avx2_kernels());
    }
#endif
    found.push_back(&portable_kernels());
#ifdef CABOCHON_HAVE_AVX512_EMULATED
    if (avx2) {
      found.push_back(&avx512_emulated_kernels());
    }
#endif
    return found;
  }();
  return available;
}

}  // namespace cabochon
