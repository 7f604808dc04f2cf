// Which instruction sets this build has and this CPU runs.
#pragma once

#include <vector>

#include "kernels/kernels.h"

namespace cabochon {

// Best first; the emulated ones last. Never empty.
const std::vector<const Kernels*>& available_kernels();

}  // namespace cabochon
