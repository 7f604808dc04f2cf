// The integer weights of a file, one block of 32 inputs of one row at a time, as the format defines them.
#pragma once

#include <cstdint>

#include "weights/packed.h"

namespace cabochon::reference {

// Weight k is scale[k / 16] * w[k] - minimum[k / 16].
struct Block {
  int w[32];
  float scale[2];
  float minimum[2];
};

// Block `b` of a row of a quantised format.
Block block_of(Format format, const uint8_t* file_row, int64_t b);

// True for formats whose two half blocks have scales of their own.
bool has_half_scales(Format format);

// True for formats whose blocks or half blocks have a minimum.
bool has_minima(Format format);

}  // namespace cabochon::reference
