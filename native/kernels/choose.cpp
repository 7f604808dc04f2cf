#include "kernels/choose.h"

#ifdef CABOCHON_HAVE_AVXVNNI
#include <cpuid.h>
#endif

namespace cabochon {
namespace {

#ifdef CABOCHON_HAVE_AVX2
// Every CPU that has AVX2 has F16C, which not every compiler can ask for.
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

#ifdef CABOCHON_HAVE_AVXVNNI
// Not every compiler can ask for it: CPUID leaf 7, subleaf 1, EAX bit 4.
bool has_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1u) != 0;
}
#endif

#ifdef CABOCHON_HAVE_AVX512
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

const std::vector<const Kernels*>& available_kernels() {
  static const std::vector<const Kernels*> available = [] {
    std::vector<const Kernels*> found;
#ifdef CABOCHON_HAVE_AVX512
    if (has_avx512()) {
      found.push_back(&avx512_kernels());
    }
#endif
#ifdef CABOCHON_HAVE_AVXVNNI
    if (has_avxvnni()) {
      found.push_back(&avxvnni_kernels());
    }
#endif
#ifdef CABOCHON_HAVE_AVX2
    if (has_avx2()) {
      found.push_back(&avx2_kernels());
    }
#endif
    found.push_back(&portable_kernels());
#ifdef CABOCHON_HAVE_AVX512_EMULATED
    if (has_avx2()) {
      found.push_back(&avx512_emulated_kernels());
    }
#endif
#ifdef CABOCHON_HAVE_AVXVNNI_EMULATED
    if (has_avx2()) {
      found.push_back(&avxvnni_emulated_kernels());
    }
#endif
    return found;
  }();
  return available;
}

}  // namespace cabochon
