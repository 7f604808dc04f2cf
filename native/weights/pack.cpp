#include <cstring>

#include "weights/pack_units.h"
#include "weights/packed.h"

namespace cabochon {
namespace {

// f(Pack{}) with the packing of a quantised format; nothing for another.
template <class F>
void with_pack(Format format, F f) {
  switch (format) {
    case Format::Q4_0:
      return f(PackQ4_0{});
    case Format::Q4_1:
      return f(PackQ4_1{});
    case Format::Q5_0:
      return f(PackQ5_0{});
    case Format::Q5_1:
      return f(PackQ5_1{});
    case Format::Q8_0:
      return f(PackQ8_0{});
    case Format::Q2_K:
      return f(PackQ2_K{});
    case Format::Q3_K:
      return f(PackQ3_K{});
    case Format::Q4_K:
      return f(PackQ4_K{});
    case Format::Q5_K:
      return f(PackQ5_K{});
    case Format::Q6_K:
      return f(PackQ6_K{});
    case Format::IQ4_NL:
      return f(PackIQ4_NL{});
    case Format::IQ4_XS:
      return f(PackIQ4_XS{});
    case Format::F32:
    case Format::F16:
    case Format::BF16:
      return;
  }
}

template <class Pack>
void pack_quantized(const uint8_t* file_rows, int64_t present, int64_t cols, uint8_t* out) {
  static_assert(Pack::Layout::kBytes == kLanes * Pack::kFileBytes, "no format is larger than its file");
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
  if (format == Format::F32) {
    return {1, 4};
  }
  if (format == Format::F16 || format == Format::BF16) {
    return {1, 2};
  }
  Block block{0, 0};
  with_pack(format, [&](auto pack) { block = {decltype(pack)::Layout::kInputs, decltype(pack)::kFileBytes}; });
  return block;
}

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
  if (format == Format::F32) {
    transpose<uint32_t>(file_rows, present, cols, out);
  } else if (format == Format::F16 || format == Format::BF16) {
    transpose<uint16_t>(file_rows, present, cols, out);
  } else {
    with_pack(format, [&](auto pack) { pack_quantized<decltype(pack)>(file_rows, present, cols, out); });
  }
}

}  // namespace cabochon
