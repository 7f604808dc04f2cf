// Where things lie in a packed group of 16 output rows (lanes). A unit is 32 inputs (Q8_0, Q5_0) or 256 (K-quants);
// units follow one another in the order of their inputs.
//
// A slice is 64 bytes, [16 rows][4 inputs]; a block of 32 inputs has 8. Nibbles of a block are four times 64 bytes:
// chunk j holds slice j in the low nibbles and slice j + 4 in the high ones, so low nibbles are inputs 0-15 and high
// ones 16-31. Every number per row ([16]) has the rows in order. All integer weights are unsigned bytes: weight +
// kOffset.
#pragma once

namespace cabochon::layout {

inline constexpr int kSlice = 64;
inline constexpr int kNibbleBytes = 256;  // one block's

struct Q8_0 {
  static constexpr int kInputs = 32, kBytes = 544, kOffset = 128;
  static constexpr int kD = 0;        // float16 [16]
  static constexpr int kValues = 32;  // 8 slices
};

struct Q5_0 {
  static constexpr int kInputs = 32, kBytes = 352, kOffset = 16;
  static constexpr int kD = 0;        // float16 [16]
  static constexpr int kValues = 32;  // nibbles
  static constexpr int kPlane = 288;  // the fifth bits: bit s of byte [row][k % 4] belongs to slice s
};

struct Q4_K {
  static constexpr int kInputs = 256, kBytes = 2304, kOffset = 0;
  static constexpr int kD = 0;           // float16 [16]
  static constexpr int kDMin = 32;       // float16 [16]
  static constexpr int kScaleLow = 64;   // per block [16]: low 4 bits of the scale, and above them of the minimum
  static constexpr int kScaleTop = 192;  // per block 8 bytes, rows 0-7 in low nibbles and 8-15 in high ones: 2 top bits
                                         // of the scale, and above them of the minimum
  static constexpr int kValues = 256;    // per block: nibbles
};

struct Q6_K {
  static constexpr int kInputs = 256, kBytes = 3360, kOffset = 32;
  static constexpr int kD = 0;         // float16 [16]
  static constexpr int kScales = 32;   // per half block of 16 inputs: int8 [16]
  static constexpr int kValues = 288;  // per block: nibbles, then two planes of 64 bytes
  static constexpr int kBlockBytes = 384;
  static constexpr int kPlane = 256;  // in plane h, bits 2j and 2j + 1 of byte [row][k % 4] belong to slice 4h + j
};

}  // namespace cabochon::layout
