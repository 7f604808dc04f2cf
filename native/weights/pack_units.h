// Packing one unit of one row: pack(file block, row, packed unit of all 16 rows).
#pragma once

#include "weights/pack_bits.h"

namespace cabochon {

// ---- Units of 32 ------------------------------------------------------------------------------------------------

struct PackQ8_0 {
  using Layout = layout::Q8_0;
  static constexpr int kFileBytes = 34;  // d, 32 int8
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    uint8_t* slices = out + Layout::kValues + 4 * row;
    for (int s = 0; s < 8; ++s) {
      store_u32(slices + layout::kSlice * s, load_u32(block + 2 + 4 * s) ^ 0x80808080u);
    }
  }
};

// d, then nibbles.
template <class L>
struct PackNibbles {
  using Layout = L;
  static constexpr int kFileBytes = 18;
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    pack_nibbles(block + 2, out + Layout::kValues + 4 * row);
  }
};
using PackQ4_0 = PackNibbles<layout::Q4_0>;
using PackIQ4_NL = PackNibbles<layout::IQ4_NL>;

struct PackQ4_1 {
  using Layout = layout::Q4_1;
  static constexpr int kFileBytes = 20;  // d, m, nibbles
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    copy_f16(out + Layout::kM, row, block + 2);
    pack_nibbles(block + 4, out + Layout::kValues + 4 * row);
  }
};

struct PackQ5_0 {
  using Layout = layout::Q5_0;
  static constexpr int kFileBytes = 22;  // d, 32 fifth bits, nibbles
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    pack_bit_string(block + 2, out + Layout::kFifth + 4 * row);
    pack_nibbles(block + 6, out + Layout::kValues + 4 * row);
  }
};

struct PackQ5_1 {
  using Layout = layout::Q5_1;
  static constexpr int kFileBytes = 24;  // d, m, 32 fifth bits, nibbles
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    copy_f16(out + Layout::kM, row, block + 2);
    pack_bit_string(block + 4, out + Layout::kFifth + 4 * row);
    pack_nibbles(block + 8, out + Layout::kValues + 4 * row);
  }
};

// ---- Units of 256 -----------------------------------------------------------------------------------------------

struct PackQ2_K {
  using Layout = layout::Q2_K;
  static constexpr int kFileBytes = 84;  // 16 bytes of scale and minimum, 64 of pairs, d, dmin
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block + 80);
    copy_f16(out + Layout::kDMin, row, block + 82);
    for (int half = 0; half < 16; ++half) {
      out[Layout::kScales + 16 * half + row] = block[half];
    }
    for (int b = 0; b < 8; ++b) {
      pack_pairs(block + 16 + 32 * (b / 4), b % 4, out + Layout::kValues + Layout::kBlockBytes * b + 4 * row);
    }
  }
};

struct PackQ3_K {
  using Layout = layout::Q3_K;
  static constexpr int kFileBytes = 110;  // 32 bytes of third bits, 64 of pairs, 12 of 6-bit scales, d
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block + 108);
    for (int b = 0; b < 8; ++b) {
      pack_six_bits(b, row, scale(block + 96, 2 * b), scale(block + 96, 2 * b + 1), out + Layout::kScales);
      uint8_t* values = out + Layout::kValues + Layout::kBlockBytes * b + 4 * row;
      pack_pairs(block + 32 + 32 * (b / 4), b % 4, values);
      pack_bits(block, b, values + Layout::kThird);
    }
  }
  // Low nibbles of scales 0-7 and, above them, of 8-15 in bytes 0-7; pairs of top bits of each fourth one in bytes
  // 8-11.
  static int scale(const uint8_t* packed, int i) {
    const int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
    return low | (packed[8 + i % 4] >> (2 * (i / 4)) & 3) << 4;
  }
};

// The first bytes of Q4_K and Q5_K: d, dmin and 12 bytes of 6-bit scales and minima.
template <class Layout>
void pack_scales_and_minima(const uint8_t* block, int row, uint8_t* out) {
  copy_f16(out + Layout::kD, row, block);
  copy_f16(out + Layout::kDMin, row, block + 2);
  const uint8_t* packed = block + 4;
  for (int b = 0; b < 8; ++b) {
    const int scale = b < 4 ? packed[b] & 63 : (packed[b + 4] & 15) | (packed[b - 4] >> 6) << 4;
    const int minimum = b < 4 ? packed[b + 4] & 63 : (packed[b + 4] >> 4) | (packed[b] >> 6) << 4;
    pack_six_bits(b, row, scale, minimum, out + Layout::kScales);
  }
}

struct PackQ4_K {
  using Layout = layout::Q4_K;
  static constexpr int kFileBytes = 144;  // and 128 bytes of nibbles
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    pack_scales_and_minima<Layout>(block, row, out);
    for (int b = 0; b < 8; ++b) {
      pack_half_nibbles(block + 16 + 32 * (b / 2), b % 2 == 1,
                        out + Layout::kValues + Layout::kBlockBytes * b + 4 * row);
    }
  }
};

struct PackQ5_K {
  using Layout = layout::Q5_K;
  static constexpr int kFileBytes = 176;  // and 32 bytes of fifth bits, 128 of nibbles
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    pack_scales_and_minima<Layout>(block, row, out);
    for (int b = 0; b < 8; ++b) {
      uint8_t* values = out + Layout::kValues + Layout::kBlockBytes * b + 4 * row;
      pack_half_nibbles(block + 48 + 32 * (b / 2), b % 2 == 1, values);
      pack_bits(block + 16, b, values + Layout::kFifth);
    }
  }
};

struct PackQ6_K {
  using Layout = layout::Q6_K;
  static constexpr int kFileBytes = 210;  // 128 bytes of nibbles, 64 of two top bits, 16 int8 scales, d
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block + 208);
    for (int half = 0; half < 16; ++half) {
      out[Layout::kScales + 16 * half + row] = block[192 + half];
    }
    for (int b = 0; b < 8; ++b) {  // blocks 0-3 and 4-7 are alike: nibbles low, low, high, high of 64 bytes
      const int quarter = b % 4;
      uint8_t* values = out + Layout::kValues + Layout::kBlockBytes * b + 4 * row;
      pack_half_nibbles(block + 64 * (b / 4) + 32 * (quarter % 2), quarter >= 2, values);
      pack_pairs(block + 128 + 32 * (b / 4), quarter, values + Layout::kTops);
    }
  }
};

struct PackIQ4_XS {
  using Layout = layout::IQ4_XS;
  static constexpr int kFileBytes = 136;  // d, 2 bytes of pairs and 4 of nibbles of 6-bit scales, 128 bytes of nibbles
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    const int tops = block[2] | block[3] << 8;
    const auto top = [&](int b) { return tops >> (2 * b) & 3; };
    for (int b = 0; b < 8; ++b) {
      store_nibble(out[Layout::kScaleLow + 8 * b + row % 8], row >= 8, block[4 + b / 2] >> (4 * (b % 2)) & 15);
      if (b < 4) {
        store_nibble(out[Layout::kScaleTop + 8 * b + row % 8], row >= 8, top(b) | top(b + 4) << 2);
      }
      pack_nibbles(block + 8 + 16 * b, out + Layout::kValues + Layout::kBlockBytes * b + 4 * row);
    }
  }
};

}  // namespace cabochon
