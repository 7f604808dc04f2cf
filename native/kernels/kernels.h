// One table per instruction set. The tables hold pointers only; nothing here knows which machine it runs on.
#pragma once

#include "kernels/attention.h"
#include "kernels/best.h"
#include "kernels/linear.h"
#include "kernels/rows.h"

namespace cabochon {

struct Kernels {
  const char* name;
  LinearKernels linear;
  RowKernels rows;
  AttentionKernels attention;
  BestKernels best;
};

const Kernels& portable_kernels();
#ifdef CABOCHON_HAVE_AVX2
const Kernels& avx2_kernels();
#endif
#ifdef CABOCHON_HAVE_AVXVNNI
const Kernels& avxvnni_kernels();
#endif
#ifdef CABOCHON_HAVE_AVX512
const Kernels& avx512_kernels();
#endif
#ifdef CABOCHON_HAVE_AVXVNNI_EMULATED
const Kernels& avxvnni_emulated_kernels();
#endif
#ifdef CABOCHON_HAVE_AVX512_EMULATED
const Kernels& avx512_emulated_kernels();
#endif

}  // namespace cabochon
