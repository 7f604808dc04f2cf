#include "reference/blocks.h"

#include <cstring>

#include "reference/functions.h"

namespace cabochon::reference {
namespace {

float f16(const uint8_t* p) { return f16_to_f32(static_cast<uint16_t>(p[0] | p[1] << 8)); }

void set_scale(Block& out, float scale) { out.scale[0] = out.scale[1] = scale; }
void set_minimum(Block& out, float minimum) { out.minimum[0] = out.minimum[1] = minimum; }

// Input k of 16 bytes whose low nibbles are inputs 0-15 and whose high ones are 16-31.
int nibble(const uint8_t* bytes, int k) { return k < 16 ? bytes[k] % 16 : bytes[k - 16] / 16; }
int bit(const uint8_t* bits, int k) { return bits[k / 8] >> (k % 8) & 1; }

// ---- Blocks of 32 -----------------------------------------------------------------------------------------------

Block q8_0(const uint8_t* block) {
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = static_cast<int8_t>(block[2 + k]);
  }
  set_scale(out, f16(block));
  return out;
}

Block q4_0(const uint8_t* block) {
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = nibble(block + 2, k) - 8;
  }
  set_scale(out, f16(block));
  return out;
}

Block q4_1(const uint8_t* block) {
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = nibble(block + 4, k);
  }
  set_scale(out, f16(block));
  set_minimum(out, -f16(block + 2));
  return out;
}

Block q5_0(const uint8_t* block) {
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = nibble(block + 6, k) + 16 * bit(block + 2, k) - 16;
  }
  set_scale(out, f16(block));
  return out;
}

Block q5_1(const uint8_t* block) {
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = nibble(block + 8, k) + 16 * bit(block + 4, k);
  }
  set_scale(out, f16(block));
  set_minimum(out, -f16(block + 2));
  return out;
}

// The values that 4 bits stand for in the IQ4 formats.
constexpr int kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

Block iq4_nl(const uint8_t* block) {
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = kNonLinear[nibble(block + 2, k)];
  }
  set_scale(out, f16(block));
  return out;
}

// ---- Blocks of 256: number j of the eight blocks of 32 ------------------------------------------------------------

Block q2_k(const uint8_t* block, int j) {
  const uint8_t* pairs = block + 16 + 32 * (j / 4);
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = pairs[k] >> (2 * (j % 4)) & 3;
  }
  for (int half = 0; half < 2; ++half) {
    const int packed = block[2 * j + half];
    out.scale[half] = f16(block + 80) * static_cast<float>(packed % 16);
    out.minimum[half] = f16(block + 82) * static_cast<float>(packed / 16);
  }
  return out;
}

Block q3_k(const uint8_t* block, int j) {
  const uint8_t *pairs = block + 32 + 32 * (j / 4), *packed = block + 96;
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = (pairs[k] >> (2 * (j % 4)) & 3) + 4 * (block[k] >> j & 1) - 4;
  }
  for (int half = 0; half < 2; ++half) {
    // Sixteen scales: 4 low bits in eight bytes, then 2 top bits in four.
    const int i = 2 * j + half;
    const int low = i < 8 ? packed[i] % 16 : packed[i - 8] / 16;
    const int top = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
    out.scale[half] = f16(block + 108) * static_cast<float>(low + 16 * top - 32);
  }
  return out;
}

// Scale and minimum of Q4_K and Q5_K, from the first 16 bytes of the block.
void set_scale_and_minimum(Block& out, const uint8_t* block, int j) {
  const uint8_t* packed = block + 4;
  // Blocks 0-3 keep 6 bits in one byte; blocks 4-7 keep 4 bits in bytes 8-11 and 2 above those of blocks 0-3.
  const int scale = j < 4 ? packed[j] % 64 : packed[j + 4] % 16 + 16 * (packed[j - 4] / 64);
  const int minimum = j < 4 ? packed[j + 4] % 64 : packed[j + 4] / 16 + 16 * (packed[j] / 64);
  set_scale(out, f16(block) * static_cast<float>(scale));
  set_minimum(out, f16(block + 2) * static_cast<float>(minimum));
}

Block q4_k(const uint8_t* block, int j) {
  const uint8_t* nibbles = block + 16 + 32 * (j / 2);
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = j % 2 == 0 ? nibbles[k] % 16 : nibbles[k] / 16;
  }
  set_scale_and_minimum(out, block, j);
  return out;
}

Block q5_k(const uint8_t* block, int j) {
  const uint8_t *fifth = block + 16, *nibbles = block + 48 + 32 * (j / 2);
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = (j % 2 == 0 ? nibbles[k] % 16 : nibbles[k] / 16) + 16 * (fifth[k] >> j & 1);
  }
  set_scale_and_minimum(out, block, j);
  return out;
}

Block q6_k(const uint8_t* block, int j) {
  const int quarter = j % 4;
  const uint8_t* nibbles = block + 64 * (j / 4) + 32 * (quarter % 2);
  const uint8_t* tops = block + 128 + 32 * (j / 4);
  Block out{};
  for (int k = 0; k < 32; ++k) {
    const int low = quarter < 2 ? nibbles[k] % 16 : nibbles[k] / 16;
    const int high = tops[k] >> (2 * quarter) & 3;
    out.w[k] = low + 16 * high - 32;
  }
  for (int half = 0; half < 2; ++half) {
    out.scale[half] = f16(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + 2 * j + half]));
  }
  return out;
}

Block iq4_xs(const uint8_t* block, int j) {
  const int tops = block[2] | block[3] << 8;
  const int low = j % 2 == 0 ? block[4 + j / 2] % 16 : block[4 + j / 2] / 16;
  Block out{};
  for (int k = 0; k < 32; ++k) {
    out.w[k] = kNonLinear[nibble(block + 8 + 16 * j, k)];
  }
  set_scale(out, f16(block) * static_cast<float>(low + 16 * (tops >> (2 * j) & 3) - 32));
  return out;
}

}  // namespace

Block block_of(Format format, const uint8_t* row, int64_t b) {
  const int j = static_cast<int>(b % 8);
  switch (format) {
    case Format::Q4_0:
      return q4_0(row + 18 * b);
    case Format::Q4_1:
      return q4_1(row + 20 * b);
    case Format::Q5_0:
      return q5_0(row + 22 * b);
    case Format::Q5_1:
      return q5_1(row + 24 * b);
    case Format::Q8_0:
      return q8_0(row + 34 * b);
    case Format::IQ4_NL:
      return iq4_nl(row + 18 * b);
    case Format::Q2_K:
      return q2_k(row + 84 * (b / 8), j);
    case Format::Q3_K:
      return q3_k(row + 110 * (b / 8), j);
    case Format::Q4_K:
      return q4_k(row + 144 * (b / 8), j);
    case Format::Q5_K:
      return q5_k(row + 176 * (b / 8), j);
    case Format::Q6_K:
      return q6_k(row + 210 * (b / 8), j);
    case Format::IQ4_XS:
      return iq4_xs(row + 136 * (b / 8), j);
    case Format::F32:
    case Format::F16:
    case Format::BF16:
      break;
  }
  return {};
}

bool has_half_scales(Format format) {
  return format == Format::Q2_K || format == Format::Q3_K || format == Format::Q6_K;
}

bool has_minima(Format format) {
  return format == Format::Q4_1 || format == Format::Q5_1 || format == Format::Q2_K || format == Format::Q4_K ||
         format == Format::Q5_K;
}

}  // namespace cabochon::reference
