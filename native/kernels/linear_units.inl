// The units of a packed group (weights/layout.h): any of its blocks of 32 inputs as slices of unsigned bytes and as
// scales in floats, in registers.
#pragma once

#include <cstdint>

#include "weights/layout.h"

namespace cabochon::CABOCHON_ISA {

struct BlockScales {
  F32x16 scale;         // of all inputs, or of inputs 0-15 where kHalves is 2
  F32x16 second_scale;  // of inputs 16-31, where kHalves is 2
  F32x16 minimum;       // where kHasMin

  F32x16 of_half(int h) const { return h == 0 ? scale : second_scale; }
};

inline BlockScales one_scale(F32x16 scale) {
  BlockScales s;
  s.scale = scale;
  return s;
}

struct SlicePair {
  Bytes64 first, second;  // slices J and J + 4
};

inline F32x16 load_f16_bytes(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }

struct UnitQ8_0 {
  using Layout = layout::Q8_0;
  static constexpr int kBits = 8, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = false;
  const uint8_t* unit;

  explicit UnitQ8_0(const uint8_t* p) : unit(p) {}
  template <int J>
  SlicePair pair(int) const {
    const uint8_t* slices = unit + Layout::kValues;
    return {load_bytes(slices + layout::kSlice * J), load_bytes(slices + layout::kSlice * (J + 4))};
  }
  BlockScales scales(int) const { return one_scale(load_f16_bytes(unit + Layout::kD)); }
};

struct UnitQ5_0 {
  using Layout = layout::Q5_0;
  static constexpr int kBits = 5, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = false;
  const uint8_t* unit;
  Bytes64 plane;

  explicit UnitQ5_0(const uint8_t* p) : unit(p), plane(load_bytes(p + Layout::kPlane)) {}
  template <int J>
  SlicePair pair(int) const {
    const Bytes64 nibbles = load_bytes(unit + Layout::kValues + layout::kSlice * J);
    return {(nibbles & 0x0f) | (shift<J - 4>(plane) & 0x10), (shift<4>(nibbles) & 0x0f) | (shift<J>(plane) & 0x10)};
  }
  BlockScales scales(int) const { return one_scale(load_f16_bytes(unit + Layout::kD)); }
};

struct UnitQ4_K {
  using Layout = layout::Q4_K;
  static constexpr int kBits = 4, kHalves = 1, kBlocks = 8;
  static constexpr bool kHasMin = true;
  const uint8_t* unit;
  F32x16 d, dmin;
  uint8_t sub_scales[128], sub_minima[128];  // [block][row]

  explicit UnitQ4_K(const uint8_t* p)
      : unit(p), d(load_f16_bytes(p + Layout::kD)), dmin(load_f16_bytes(p + Layout::kDMin)) {
    repeat<2>([&](auto half) CABOCHON_INLINE {  // four blocks each
      const Bytes64 low = load_bytes(p + Layout::kScaleLow + 64 * half);
      const Bytes64 top = load_nibbles(p + Layout::kScaleTop + 32 * half);
      store_bytes(sub_scales + 64 * half, (low & 0x0f) | (shift<-4>(top) & 0x30));
      store_bytes(sub_minima + 64 * half, (shift<4>(low) & 0x0f) | (shift<-2>(top) & 0x30));
    });
  }
  template <int J>
  SlicePair pair(int i) const {
    const Bytes64 nibbles = load_bytes(unit + Layout::kValues + layout::kNibbleBytes * i + layout::kSlice * J);
    return {nibbles & 0x0f, shift<4>(nibbles) & 0x0f};
  }
  BlockScales scales(int i) const {
    BlockScales s = one_scale(d * load_u8(sub_scales + 16 * i));
    s.minimum = dmin * load_u8(sub_minima + 16 * i);
    return s;
  }
};

struct UnitQ6_K {
  using Layout = layout::Q6_K;
  static constexpr int kBits = 6, kHalves = 2, kBlocks = 8;
  static constexpr bool kHasMin = false;
  const uint8_t* unit;
  F32x16 d;

  explicit UnitQ6_K(const uint8_t* p) : unit(p), d(load_f16_bytes(p + Layout::kD)) {}
  template <int J>
  SlicePair pair(int i) const {
    const uint8_t* values = unit + Layout::kValues + Layout::kBlockBytes * i;
    const Bytes64 nibbles = load_bytes(values + layout::kSlice * J);
    const Bytes64 first = load_bytes(values + Layout::kPlane);
    const Bytes64 second = load_bytes(values + Layout::kPlane + layout::kSlice);
    return {(nibbles & 0x0f) | (shift<2 * J - 4>(first) & 0x30),
            (shift<4>(nibbles) & 0x0f) | (shift<2 * J - 4>(second) & 0x30)};
  }
  BlockScales scales(int i) const {
    const auto* sub = reinterpret_cast<const int8_t*>(unit + Layout::kScales + 32 * i);
    BlockScales s = one_scale(d * load_i8(sub));
    s.second_scale = d * load_i8(sub + 16);
    return s;
  }
};

}  // namespace cabochon::CABOCHON_ISA
