#include <cstring>

#include "weights/layout.h"
#include "weights/packed.h"

namespace cabochon {
namespace {

uint32_t load_u32(const uint8_t* p) {
  uint32_t x;
  std::memcpy(&x, p, 4);
  return x;
}
void store_u32(uint8_t* p, uint32_t x) { std::memcpy(p, &x, 4); }

void copy_f16(uint8_t* out, int row, const uint8_t* f16) { std::memcpy(out + 2 * row, f16, 2); }

// Each of these packs one file block of one row; `out` is the unit of all 16.

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

// Bit i of a nibble becomes the lowest bit of byte i.
constexpr uint32_t spread(uint32_t nibble) {
  return (nibble & 1u) | (nibble & 2u) << 7 | (nibble & 4u) << 14 | (nibble & 8u) << 21;
}
constexpr uint32_t kSpread[16] = {spread(0),  spread(1),  spread(2),  spread(3), spread(4),  spread(5),
                                  spread(6),  spread(7),  spread(8),  spread(9), spread(10), spread(11),
                                  spread(12), spread(13), spread(14), spread(15)};

struct PackQ5_0 {
  using Layout = layout::Q5_0;
  static constexpr int kFileBytes = 22;  // d, 32 fifth bits, 16 bytes of nibbles (inputs 0-15 low, 16-31 high)
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    uint8_t* chunks = out + Layout::kValues + 4 * row;
    for (int j = 0; j < 4; ++j) {
      store_u32(chunks + layout::kSlice * j, load_u32(block + 6 + 4 * j));
    }
    const uint32_t bits = load_u32(block + 2);
    uint32_t plane = 0;
    for (int s = 0; s < 8; ++s) {
      plane |= kSpread[(bits >> (4 * s)) & 15u] << s;
    }
    store_u32(out + Layout::kPlane + 4 * row, plane);
  }
};

// The K-quants hold two blocks of 32 in the low and the high nibbles of the same 32 bytes. Takes one of them.
void pack_half_nibbles(const uint8_t* bytes, bool high, uint8_t* chunks) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t first = load_u32(bytes + 4 * j), second = load_u32(bytes + 16 + 4 * j);
    const uint32_t low = 0x0f0f0f0fu;
    store_u32(chunks + layout::kSlice * j, high ? ((first >> 4) & low) | (second & ~low)  //
                                                : (first & low) | ((second & low) << 4));
  }
}

struct PackQ4_K {
  using Layout = layout::Q4_K;
  static constexpr int kFileBytes = 144;  // d, dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles
  static void pack(const uint8_t* block, int row, uint8_t* out) {
    copy_f16(out + Layout::kD, row, block);
    copy_f16(out + Layout::kDMin, row, block + 2);
    const uint8_t* packed = block + 4;
    for (int b = 0; b < 8; ++b) {
      const int scale = b < 4 ? packed[b] & 63 : (packed[b + 4] & 15) | (packed[b - 4] >> 6) << 4;
      const int minimum = b < 4 ? packed[b + 4] & 63 : (packed[b + 4] >> 4) | (packed[b] >> 6) << 4;
      out[Layout::kScaleLow + 16 * b + row] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
      const int top = scale >> 4 | (minimum >> 4) << 2;
      uint8_t& both = out[Layout::kScaleTop + 8 * b + row % 8];  // row r comes before row r + 8
      both = static_cast<uint8_t>(row < 8 ? top : both | top << 4);
      pack_half_nibbles(block + 16 + 32 * (b / 2), b % 2 == 1,
                        out + Layout::kValues + layout::kNibbleBytes * b + 4 * row);
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
      const uint8_t* tops = block + 128 + 32 * (b / 4);
      for (int plane = 0; plane < 2; ++plane) {
        uint32_t bits = 0;
        for (int j = 0; j < 4; ++j) {
          bits |= ((load_u32(tops + 16 * plane + 4 * j) >> (2 * quarter)) & 0x03030303u) << (2 * j);
        }
        store_u32(values + Layout::kPlane + layout::kSlice * plane, bits);
      }
    }
  }
};

template <class Pack>
void pack_quantized(const uint8_t* file_rows, int64_t present, int64_t cols, uint8_t* out) {
  const int64_t units = cols / Pack::Layout::kInputs;
  for (int64_t u = 0; u < units; ++u) {
    for (int row = 0; row < present; ++row) {
      Pack::pack(file_rows + (row * units + u) * Pack::kFileBytes, row, out + u * Pack::Layout::kBytes);
    }
  }
}

// [rows][cols] to [cols][16].
template <class Bits>
void transpose(const uint8_t* file_rows, int64_t present, int64_t cols, uint8_t* out) {
  constexpr int64_t kSize = sizeof(Bits);
  for (int64_t k = 0; k < cols; ++k) {
    for (int64_t row = 0; row < present; ++row) {
      std::memcpy(out + (k * kLanes + row) * kSize, file_rows + (row * cols + k) * kSize, kSize);
    }
  }
}

struct Block {
  int inputs, bytes;
};
Block file_block(Format format) {
  switch (format) {
    case Format::F32:
      return {1, 4};
    case Format::F16:
    case Format::BF16:
      return {1, 2};
    case Format::Q8_0:
      return {layout::Q8_0::kInputs, PackQ8_0::kFileBytes};
    case Format::Q5_0:
      return {layout::Q5_0::kInputs, PackQ5_0::kFileBytes};
    case Format::Q4_K:
      return {layout::Q4_K::kInputs, PackQ4_K::kFileBytes};
    case Format::Q6_K:
      return {layout::Q6_K::kInputs, PackQ6_K::kFileBytes};
  }
  return {0, 0};
}

static_assert(layout::Q8_0::kBytes == kLanes * PackQ8_0::kFileBytes);
static_assert(layout::Q5_0::kBytes == kLanes * PackQ5_0::kFileBytes);
static_assert(layout::Q4_K::kBytes == kLanes * PackQ4_K::kFileBytes);
static_assert(layout::Q6_K::kBytes == kLanes * PackQ6_K::kFileBytes);

}  // namespace

size_t file_row_bytes(Format format, int64_t cols) {
  const Block block = file_block(format);
  if (block.inputs == 0 || cols <= 0 || cols % block.inputs != 0) {
    return 0;
  }
  return static_cast<size_t>(cols / block.inputs) * static_cast<size_t>(block.bytes);
}

size_t packed_group_bytes(Format format, int64_t cols) { return kLanes * file_row_bytes(format, cols); }

void pack_group(Format format, const uint8_t* file_rows, int64_t present, int64_t cols, uint8_t* out) {
  if (present < kLanes) {
    std::memset(out, 0, packed_group_bytes(format, cols));
  }
  switch (format) {
    case Format::F32:
      return transpose<uint32_t>(file_rows, present, cols, out);
    case Format::F16:
    case Format::BF16:
      return transpose<uint16_t>(file_rows, present, cols, out);
    case Format::Q8_0:
      return pack_quantized<PackQ8_0>(file_rows, present, cols, out);
    case Format::Q5_0:
      return pack_quantized<PackQ5_0>(file_rows, present, cols, out);
    case Format::Q4_K:
      return pack_quantized<PackQ4_K>(file_rows, present, cols, out);
    case Format::Q6_K:
      return pack_quantized<PackQ6_K>(file_rows, present, cols, out);
  }
}

}  // namespace cabochon
