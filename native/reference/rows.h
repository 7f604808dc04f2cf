// docs/arithmetic.md sections 5 and 7 as plain loops, behind the same table as the kernels they judge.
#pragma once

#include "kernels/rows.h"

namespace cabochon::reference {

RowKernels row_kernels();

// The value stored at place `index` of the keys (or values) of a layer, whose scale (Int8) is at `scale_index`.
float stored(const KVLayer& kv, const void* array, const float* scales, int64_t index, int64_t scale_index);

}  // namespace cabochon::reference
