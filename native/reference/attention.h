// docs/arithmetic.md section 6 as plain loops, behind the same table as the kernels it judges.
#pragma once

#include "kernels/attention.h"

namespace cabochon::reference {

AttentionKernels attention_kernels();

}  // namespace cabochon::reference
