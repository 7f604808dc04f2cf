// Moving the bits of four inputs of one row at a time, from a file's bytes into packed ones (weights/layout.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "weights/layout.h"

namespace cabochon {

inline uint32_t load_u32(const uint8_t* p) {
  uint32_t x;
  std::memcpy(&x, p, 4);
  return x;
}
inline void store_u32(uint8_t* p, uint32_t x) { std::memcpy(p, &x, 4); }

// One float16 of a row into an array of 16.
inline void copy_f16(uint8_t* out, int row, const uint8_t* f16) { std::memcpy(out + 2 * row, f16, 2); }

// In all that follows `out` is where the row's four bytes of a slice or plane begin: the form's place + 4 * row.

// 16 bytes with inputs 0-15 in the low nibbles and 16-31 in the high ones: as packed nibbles are.
inline void pack_nibbles(const uint8_t* bytes, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    store_u32(out + layout::kSlice * j, load_u32(bytes + 4 * j));
  }
}

// The K-quants hold two blocks of 32 in the low and the high nibbles of the same 32 bytes. Takes one of them.
inline void pack_half_nibbles(const uint8_t* bytes, bool high, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t first = load_u32(bytes + 4 * j), second = load_u32(bytes + 16 + 4 * j);
    const uint32_t low = 0x0f0f0f0fu;
    store_u32(out + layout::kSlice * j, high ? ((first >> 4) & low) | (second & ~low)  //
                                             : (first & low) | ((second & low) << 4));
  }
}

// They hold four blocks of 32 in the pairs of bits of the same 32 bytes. Takes number `quarter`.
inline void pack_pairs(const uint8_t* bytes, int quarter, uint8_t* out) {
  for (int plane = 0; plane < 2; ++plane) {
    uint32_t pairs = 0;
    for (int j = 0; j < 4; ++j) {
      pairs |= ((load_u32(bytes + 16 * plane + 4 * j) >> (2 * quarter)) & 0x03030303u) << (2 * j);
    }
    store_u32(out + layout::kSlice * plane, pairs);
  }
}

// And eight blocks in the single bits of the same 32 bytes. Takes number `block`.
inline void pack_bits(const uint8_t* bytes, int block, uint8_t* out) {
  uint32_t bits = 0;
  for (int s = 0; s < 8; ++s) {
    bits |= ((load_u32(bytes + 4 * s) >> block) & 0x01010101u) << s;
  }
  store_u32(out, bits);
}

// Bit i of a nibble becomes the lowest bit of byte i.
constexpr uint32_t spread(uint32_t nibble) {
  return (nibble & 1u) | (nibble & 2u) << 7 | (nibble & 4u) << 14 | (nibble & 8u) << 21;
}
inline constexpr uint32_t kSpread[16] = {spread(0),  spread(1),  spread(2),  spread(3), spread(4),  spread(5),
                                         spread(6),  spread(7),  spread(8),  spread(9), spread(10), spread(11),
                                         spread(12), spread(13), spread(14), spread(15)};

// 32 bits, one for each input in order.
inline void pack_bit_string(const uint8_t* bits, uint8_t* out) {
  const uint32_t all = load_u32(bits);
  uint32_t plane = 0;
  for (int s = 0; s < 8; ++s) {
    plane |= kSpread[(all >> (4 * s)) & 15u] << s;
  }
  store_u32(out, plane);
}

// Sets the low or high nibble of a byte; the low ones come first, and clear the high ones.
inline void store_nibble(uint8_t& byte, bool high, int nibble) {
  byte = static_cast<uint8_t>(high ? byte | nibble << 4 : nibble);
}

// Numbers of 6 bits of one block and row, into layout::SixBitPairs. Row r comes before row r + 8.
inline void pack_six_bits(int block, int row, int first, int second, uint8_t* out) {
  out[16 * block + row] = static_cast<uint8_t>((first & 15) | (second & 15) << 4);
  store_nibble(out[layout::SixBitPairs::kTop + 8 * block + row % 8], row >= 8, first >> 4 | (second >> 4) << 2);
}

}  // namespace cabochon
