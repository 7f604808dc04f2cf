// One block of 32 inputs of a packed group: its slices as unsigned bytes and its scales as floats, in registers.
#pragma once

#include <cstdint>

#include "weights/layout.h"

namespace cabochon::CABOCHON_ISA {

struct BlockScales {
  F32x16 scale[2];   // of inputs 0-15 and 16-31; [1] only where kHalves is 2
  F32x16 minus_min;  // only where kHasMin
};

struct SlicePair {
  Bytes64 first, second;  // slices J and J + 4
};

struct BlockQ8_0 {
  using Layout = layout::Q8_0;
  static constexpr int kBits = 8, kHalves = 1;
  static constexpr bool kHasMin = false;
  const uint8_t* unit;

  BlockQ8_0(const uint8_t* group, int64_t b) : unit(group + b * Layout::kBytes) {}
  template <int J>
  SlicePair pair() const {
    const uint8_t* slices = unit + Layout::kValues;
    return {load_bytes(slices + layout::kSlice * J), load_bytes(slices + layout::kSlice * (J + 4))};
  }
  BlockScales scales() const {
    BlockScales s{};
    s.scale[0] = load_f16(reinterpret_cast<const uint16_t*>(unit + Layout::kD));
    return s;
  }
};

struct BlockQ5_0 {
  using Layout = layout::Q5_0;
  static constexpr int kBits = 5, kHalves = 1;
  static constexpr bool kHasMin = false;
  const uint8_t* unit;
  Bytes64 plane;

  BlockQ5_0(const uint8_t* group, int64_t b)
      : unit(group + b * Layout::kBytes), plane(load_bytes(unit + Layout::kPlane)) {}
  template <int J>
  SlicePair pair() const {
    const Bytes64 nibbles = load_bytes(unit + Layout::kValues + layout::kSlice * J);
    return {(nibbles & 0x0f) | (shift<J - 4>(plane) & 0x10), (shift<4>(nibbles) & 0x0f) | (shift<J>(plane) & 0x10)};
  }
  BlockScales scales() const {
    BlockScales s{};
    s.scale[0] = load_f16(reinterpret_cast<const uint16_t*>(unit + Layout::kD));
    return s;
  }
};

struct BlockQ4_K {
  using Layout = layout::Q4_K;
  static constexpr int kBits = 4, kHalves = 1;
  static constexpr bool kHasMin = true;
  const uint8_t* unit;
  int64_t i;  // block of the unit

  BlockQ4_K(const uint8_t* group, int64_t b) : unit(group + b / 8 * Layout::kBytes), i(b % 8) {}
  template <int J>
  SlicePair pair() const {
    const Bytes64 nibbles = load_bytes(unit + Layout::kValues + layout::kNibbleBytes * i + layout::kSlice * J);
    return {nibbles & 0x0f, shift<4>(nibbles) & 0x0f};
  }
  BlockScales scales() const {
    const Bytes16 low = load_bytes16(unit + Layout::kScaleLow + 16 * i);
    const Bytes16 top = load_nibbles16(unit + Layout::kScaleTop + 8 * i);
    const Bytes16 scale = (low & 0x0f) | (shift<-4>(top) & 0x30);
    const Bytes16 minimum = (shift<4>(low) & 0x0f) | (shift<-2>(top) & 0x30);
    BlockScales s{};
    s.scale[0] = load_f16(reinterpret_cast<const uint16_t*>(unit + Layout::kD)) * to_f32(scale);
    s.minus_min = negate(load_f16(reinterpret_cast<const uint16_t*>(unit + Layout::kDMin)) * to_f32(minimum));
    return s;
  }
};

struct BlockQ6_K {
  using Layout = layout::Q6_K;
  static constexpr int kBits = 6, kHalves = 2;
  static constexpr bool kHasMin = false;
  const uint8_t* unit;
  const uint8_t* values;
  int64_t i;  // block of the unit
  Bytes64 planes[2];

  BlockQ6_K(const uint8_t* group, int64_t b)
      : unit(group + b / 8 * Layout::kBytes),
        values(unit + Layout::kValues + b % 8 * Layout::kBlockBytes),
        i(b % 8),
        planes{load_bytes(values + Layout::kPlane), load_bytes(values + Layout::kPlane + layout::kSlice)} {}
  template <int J>
  SlicePair pair() const {
    const Bytes64 nibbles = load_bytes(values + layout::kSlice * J);
    return {(nibbles & 0x0f) | (shift<2 * J - 4>(planes[0]) & 0x30),
            (shift<4>(nibbles) & 0x0f) | (shift<2 * J - 4>(planes[1]) & 0x30)};
  }
  BlockScales scales() const {
    const F32x16 d = load_f16(reinterpret_cast<const uint16_t*>(unit + Layout::kD));
    const auto* sub = reinterpret_cast<const int8_t*>(unit + Layout::kScales + 32 * i);
    BlockScales s{};
    s.scale[0] = d * load_i8(sub);
    s.scale[1] = d * load_i8(sub + 16);
    return s;
  }
};

}  // namespace cabochon::CABOCHON_ISA
