// Weights as the kernels read them: the file's bits, regrouped so that sixteen output rows lie side by side.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cabochon {

// The numbers are GGUF's.
enum class Format : int32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ4_NL = 20,
  IQ4_XS = 23,
  BF16 = 30
};

inline constexpr int kLanes = 16;        // output rows of one group
inline constexpr int kBlock = 32;        // inputs of one activation block
inline constexpr int kSuperBlock = 256;  // inputs of one K-quant block

// True where activations meet integer weights (docs/arithmetic.md section 3).
constexpr bool is_quantized(Format f) { return f != Format::F32 && f != Format::F16 && f != Format::BF16; }

// A matrix [rows, cols] = [outputs, inputs]; missing rows of the last group are zero. weights/layout.h draws a group.
struct PackedWeight {
  Format format;
  int64_t rows;
  int64_t cols;
  size_t group_bytes;   // bytes of one group of kLanes rows over all cols, a multiple of 32
  const uint8_t* data;  // groups one after another, 64-byte aligned

  int64_t groups() const { return (rows + kLanes - 1) / kLanes; }
  const uint8_t* group(int64_t g) const { return data + static_cast<size_t>(g) * group_bytes; }
};

// Bytes of one row in the file. 0 if cols does not fit the format, or the format is none of the above.
size_t file_row_bytes(Format format, int64_t cols);

// Bytes of one packed group: the file's bytes of kLanes rows. 0 as above.
size_t packed_group_bytes(Format format, int64_t cols);

// Repacks `present` rows (1 to kLanes) that lie one after another in the file; the other lanes become zero. Writes
// packed_group_bytes to `out`. Moves bits, rounds nothing.
void pack_group(Format format, const uint8_t* file_rows, int64_t present, int64_t cols, uint8_t* out);

}  // namespace cabochon
