// Where things lie in a packed group of 16 output rows (lanes). A unit is 32 inputs, or 256 for the K-quants and
// IQ4_XS; units follow one another in the order of their inputs.
//
// A slice is 64 bytes, [16 rows][4 inputs]; a block of 32 inputs has 8. Weights of a block lie in one of these forms,
// or in two, the low bits first:
// - bytes: the 8 slices;
// - nibbles, four times 64 bytes: chunk j holds slice j in the low nibbles and slice j + 4 in the high ones, so low
//   nibbles are inputs 0-15 and high ones 16-31;
// - pairs of bits, two planes of 64 bytes: in plane h, bits 2j and 2j + 1 of byte [row][k % 4] belong to slice 4h + j;
// - single bits, one plane of 64 bytes: bit s of byte [row][k % 4] belongs to slice s.
// Every number per row ([16]) has the rows in order. Integer weights are unsigned bytes: weight + kOffset.
#pragma once

#include <cstdint>

namespace cabochon::layout {

inline constexpr int kSlice = 64;
inline constexpr int kNibbleBytes = 256;  // one block's
inline constexpr int kPairBytes = 128;
inline constexpr int kBitBytes = 64;

// ---- Units of 32 ------------------------------------------------------------------------------------------------

struct Q8_0 {
  static constexpr int kInputs = 32, kBytes = 544, kOffset = 128;
  static constexpr int kD = 0;        // float16 [16]
  static constexpr int kValues = 32;  // bytes
};

struct Q4_0 {
  static constexpr int kInputs = 32, kBytes = 288, kOffset = 8;
  static constexpr int kD = 0;        // float16 [16]
  static constexpr int kValues = 32;  // nibbles
};

struct Q4_1 {
  static constexpr int kInputs = 32, kBytes = 320, kOffset = 0;
  static constexpr int kD = 0;        // float16 [16]
  static constexpr int kM = 32;       // float16 [16], added
  static constexpr int kValues = 64;  // nibbles
};

struct Q5_0 {
  static constexpr int kInputs = 32, kBytes = 352, kOffset = 16;
  static constexpr int kD = 0;                           // float16 [16]
  static constexpr int kValues = 32;                     // nibbles
  static constexpr int kFifth = kValues + kNibbleBytes;  // single bits
};

struct Q5_1 {
  static constexpr int kInputs = 32, kBytes = 384, kOffset = 0;
  static constexpr int kD = 0;                           // float16 [16]
  static constexpr int kM = 32;                          // float16 [16], added
  static constexpr int kValues = 64;                     // nibbles
  static constexpr int kFifth = kValues + kNibbleBytes;  // single bits
};

struct IQ4_NL {
  static constexpr int kInputs = 32, kBytes = 288, kOffset = 128;
  static constexpr int kD = 0;        // float16 [16]
  static constexpr int kValues = 32;  // nibbles, places in the code book
};

// What the nibbles of IQ4_NL and IQ4_XS stand for, + 128.
inline constexpr uint8_t kCodeBook[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

// ---- Units of 256 -----------------------------------------------------------------------------------------------

// Two numbers of 6 bits for each block and row: 16 bytes a block with the low 4 bits of the first and above them of the
// second; and after those of all blocks 8 bytes a block, rows 0-7 in low nibbles and 8-15 in high ones, with the 2 top
// bits of the first and above them of the second.
struct SixBitPairs {
  static constexpr int kTop = 128, kBytes = 192;
};

struct Q2_K {
  static constexpr int kInputs = 256, kBytes = 1344, kOffset = 0;
  static constexpr int kD = 0;         // float16 [16]
  static constexpr int kDMin = 32;     // float16 [16]
  static constexpr int kScales = 64;   // per half block of 16 inputs [16]: scale in 4 bits, and above it the minimum
  static constexpr int kValues = 320;  // per block: pairs of bits
  static constexpr int kBlockBytes = kPairBytes;
};

struct Q3_K {
  static constexpr int kInputs = 256, kBytes = 1760, kOffset = 4;
  static constexpr int kScaleOffset = 32;
  static constexpr int kD = 0;         // float16 [16]
  static constexpr int kScales = 32;   // SixBitPairs: scales of both half blocks, + kScaleOffset
  static constexpr int kValues = 224;  // per block: pairs of bits, then single bits
  static constexpr int kBlockBytes = kPairBytes + kBitBytes;
  static constexpr int kThird = kPairBytes;
};

struct Q4_K {
  static constexpr int kInputs = 256, kBytes = 2304, kOffset = 0;
  static constexpr int kD = 0;         // float16 [16]
  static constexpr int kDMin = 32;     // float16 [16]
  static constexpr int kScales = 64;   // SixBitPairs: scale and minimum
  static constexpr int kValues = 256;  // per block: nibbles
  static constexpr int kBlockBytes = kNibbleBytes;
};

struct Q5_K {
  static constexpr int kInputs = 256, kBytes = 2816, kOffset = 0;
  static constexpr int kD = 0;         // float16 [16]
  static constexpr int kDMin = 32;     // float16 [16]
  static constexpr int kScales = 64;   // SixBitPairs: scale and minimum
  static constexpr int kValues = 256;  // per block: nibbles, then single bits
  static constexpr int kBlockBytes = kNibbleBytes + kBitBytes;
  static constexpr int kFifth = kNibbleBytes;
};

struct Q6_K {
  static constexpr int kInputs = 256, kBytes = 3360, kOffset = 32;
  static constexpr int kD = 0;         // float16 [16]
  static constexpr int kScales = 32;   // per half block of 16 inputs: int8 [16]
  static constexpr int kValues = 288;  // per block: nibbles, then pairs of bits
  static constexpr int kBlockBytes = kNibbleBytes + kPairBytes;
  static constexpr int kTops = kNibbleBytes;
};

struct IQ4_XS {
  static constexpr int kInputs = 256, kBytes = 2176, kOffset = 128;
  static constexpr int kScaleOffset = 32;
  static constexpr int kD = 0;          // float16 [16]
  static constexpr int kScaleLow = 32;  // per block 8 bytes, rows 0-7 in low nibbles and 8-15 in high ones: low 4 bits
                                        // of the scale + kScaleOffset
  static constexpr int kScaleTop = 96;  // per two blocks b and b + 4, 8 bytes of nibbles as above: the 2 top bits of
                                        // b's scale, and above them of the other's
  static constexpr int kValues = 128;   // per block: nibbles, places in the code book
  static constexpr int kBlockBytes = kNibbleBytes;
};

}  // namespace cabochon::layout
