// docs/arithmetic.md sections 3 and 4 as plain loops over the file's own bytes. Slow, and the judge of every kernel.
#pragma once

#include <cstdint>

#include "weights/packed.h"

namespace cabochon::reference {

// One row of activations: q [cols], scales [cols / 32], half_sums [cols / 16].
void quantize_row(const float* x, int64_t cols, bool two_terms, int32_t* q, float* scales, int32_t* half_sums);

// y [tokens, rows] of x [tokens, cols] and a matrix [rows, cols] in the file's layout.
void linear(Format format, const uint8_t* file, int64_t rows, int64_t cols, const float* x, int64_t tokens,
            bool two_terms, float* y);

// One row of the matrix as the file format defines it, times `scale`.
void dequantize_row(Format format, const uint8_t* file_row, int64_t cols, float scale, float* out);

}  // namespace cabochon::reference
