// One table per instruction set. The tables hold pointers only; nothing here knows which machine it runs on.
#pragma once

#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/rows.h"

namespace cabochon {

struct Kernels {
  const char* name;
  LinearKernels linear;
  RowKernels rows;
  AttentionKernels attention;
};

const Kernels& portable_kernels();
#ifdef CABOCHON_X86
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
#endif
#ifdef CABOCHON_EMULATE_AVX512
const Kernels& emulated_avx512_kernels();
#endif

}  // namespace cabochon
