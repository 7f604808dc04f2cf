// Units of 32 inputs (see units.inl).
#pragma once

#include "kernels/units.inl"

namespace cabochon::CABOCHON_ISA {

struct UnitQ8_0 {
  using Layout = layout::Q8_0;
  static constexpr int kBits = 8, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = false, kPlain = true;
  const uint8_t* unit;

  explicit UnitQ8_0(const uint8_t* p) : unit(p) {}
  template <int J>
  SlicePair pair(int) const {
    const uint8_t* slices = unit + Layout::kValues;
    return {load_bytes(slices + layout::kSlice * J), load_bytes(slices + layout::kSlice * (J + 4))};
  }
  BlockScales<1, false> scales(int) const { return {{load_f16_bytes(unit + Layout::kD)}, {}}; }
};

struct UnitQ4_0 {
  using Layout = layout::Q4_0;
  static constexpr int kBits = 4, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = false, kPlain = false;
  const uint8_t* unit;

  explicit UnitQ4_0(const uint8_t* p) : unit(p) {}
  template <int J>
  SlicePair pair(int) const {
    return nibbles_of<J>(unit + Layout::kValues);
  }
  BlockScales<1, false> scales(int) const { return {{load_f16_bytes(unit + Layout::kD)}, {}}; }
};

// An added m is a minimum of -m.
struct UnitQ4_1 {
  using Layout = layout::Q4_1;
  static constexpr int kBits = 4, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = true, kPlain = false;
  const uint8_t* unit;

  explicit UnitQ4_1(const uint8_t* p) : unit(p) {}
  template <int J>
  SlicePair pair(int) const {
    return nibbles_of<J>(unit + Layout::kValues);
  }
  BlockScales<1, true> scales(int) const {
    return {{load_f16_bytes(unit + Layout::kD)}, {negate(load_f16_bytes(unit + Layout::kM))}};
  }
};

struct UnitQ5_0 {
  using Layout = layout::Q5_0;
  static constexpr int kBits = 5, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = false, kPlain = false;
  const uint8_t* unit;
  Bytes64 fifth;

  explicit UnitQ5_0(const uint8_t* p) : unit(p), fifth(load_bytes(p + Layout::kFifth)) {}
  template <int J>
  SlicePair pair(int) const {
    return nibbles_of<J>(unit + Layout::kValues) | bits_of<J, 4>(fifth);
  }
  BlockScales<1, false> scales(int) const { return {{load_f16_bytes(unit + Layout::kD)}, {}}; }
};

struct UnitQ5_1 {
  using Layout = layout::Q5_1;
  static constexpr int kBits = 5, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = true, kPlain = false;
  const uint8_t* unit;
  Bytes64 fifth;

  explicit UnitQ5_1(const uint8_t* p) : unit(p), fifth(load_bytes(p + Layout::kFifth)) {}
  template <int J>
  SlicePair pair(int) const {
    return nibbles_of<J>(unit + Layout::kValues) | bits_of<J, 4>(fifth);
  }
  BlockScales<1, true> scales(int) const {
    return {{load_f16_bytes(unit + Layout::kD)}, {negate(load_f16_bytes(unit + Layout::kM))}};
  }
};

CABOCHON_INLINE inline SlicePair in_code_book(SlicePair places) {
  return {look_up(layout::kCodeBook, places.first), look_up(layout::kCodeBook, places.second)};
}

struct UnitIQ4_NL {
  using Layout = layout::IQ4_NL;
  static constexpr int kBits = 8, kHalves = 1, kBlocks = 1;
  static constexpr bool kHasMin = false, kPlain = false;
  const uint8_t* unit;

  explicit UnitIQ4_NL(const uint8_t* p) : unit(p) {}
  template <int J>
  SlicePair pair(int) const {
    return in_code_book(nibbles_of<J>(unit + Layout::kValues));
  }
  BlockScales<1, false> scales(int) const { return {{load_f16_bytes(unit + Layout::kD)}, {}}; }
};

}  // namespace cabochon::CABOCHON_ISA
