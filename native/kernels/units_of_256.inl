// Units of 256 inputs (see units.inl).
#pragma once

#include "kernels/units.inl"
#include "kernels/units_of_32.inl"

namespace cabochon::CABOCHON_ISA {

struct UnitQ2_K {
  using Layout = layout::Q2_K;
  static constexpr int kBits = 2, kHalves = 2, kBlocks = 8;
  static constexpr bool kHasMin = true, kPlain = false;
  const uint8_t* unit;
  F32x16 d, dmin;
  uint8_t sub_scales[256], sub_minima[256];  // [half block][row]

  explicit UnitQ2_K(const uint8_t* p)
      : unit(p), d(load_f16_bytes(p + Layout::kD)), dmin(load_f16_bytes(p + Layout::kDMin)) {
    repeat<4>([&](auto i) CABOCHON_INLINE {
      const Bytes64 both = load_bytes(p + Layout::kScales + 64 * i);
      store_bytes(sub_scales + 64 * i, both & 0x0f);
      store_bytes(sub_minima + 64 * i, shift<4>(both) & 0x0f);
    });
  }
  template <int J>
  SlicePair pair(int i) const {
    return pairs_of<J, 0>(unit + Layout::kValues + Layout::kBlockBytes * i);
  }
  BlockScales<2, true> scales(int i) const {
    const int at = 32 * i;
    return {{d * load_u8(sub_scales + at), d * load_u8(sub_scales + at + 16)},
            {dmin * load_u8(sub_minima + at), dmin * load_u8(sub_minima + at + 16)}};
  }
};

struct UnitQ3_K {
  using Layout = layout::Q3_K;
  static constexpr int kBits = 3, kHalves = 2, kBlocks = 8;
  static constexpr bool kHasMin = false, kPlain = false;
  const uint8_t* unit;
  F32x16 d;
  SixBits sub;

  explicit UnitQ3_K(const uint8_t* p) : unit(p), d(load_f16_bytes(p + Layout::kD)), sub(p + Layout::kScales) {}
  template <int J>
  SlicePair pair(int i) const {
    const uint8_t* values = unit + Layout::kValues + Layout::kBlockBytes * i;
    return pairs_of<J, 0>(values) | bits_of<J, 2>(load_bytes(values + Layout::kThird));
  }
  BlockScales<2, false> scales(int i) const {
    const F32x16 offset = broadcast(Layout::kScaleOffset);
    return {{d * (load_u8(sub.first + 16 * i) - offset), d * (load_u8(sub.second + 16 * i) - offset)}, {}};
  }
};

struct UnitQ4_K {
  using Layout = layout::Q4_K;
  static constexpr int kBits = 4, kHalves = 1, kBlocks = 8;
  static constexpr bool kHasMin = true, kPlain = false;
  const uint8_t* unit;
  F32x16 d, dmin;
  SixBits sub;

  explicit UnitQ4_K(const uint8_t* p)
      : unit(p), d(load_f16_bytes(p + Layout::kD)), dmin(load_f16_bytes(p + Layout::kDMin)), sub(p + Layout::kScales) {}
  template <int J>
  SlicePair pair(int i) const {
    return nibbles_of<J>(unit + Layout::kValues + Layout::kBlockBytes * i);
  }
  BlockScales<1, true> scales(int i) const {
    return {{d * load_u8(sub.first + 16 * i)}, {dmin * load_u8(sub.second + 16 * i)}};
  }
};

struct UnitQ5_K {
  using Layout = layout::Q5_K;
  static constexpr int kBits = 5, kHalves = 1, kBlocks = 8;
  static constexpr bool kHasMin = true, kPlain = false;
  const uint8_t* unit;
  F32x16 d, dmin;
  SixBits sub;

  explicit UnitQ5_K(const uint8_t* p)
      : unit(p), d(load_f16_bytes(p + Layout::kD)), dmin(load_f16_bytes(p + Layout::kDMin)), sub(p + Layout::kScales) {}
  template <int J>
  SlicePair pair(int i) const {
    const uint8_t* values = unit + Layout::kValues + Layout::kBlockBytes * i;
    return nibbles_of<J>(values) | bits_of<J, 4>(load_bytes(values + Layout::kFifth));
  }
  BlockScales<1, true> scales(int i) const {
    return {{d * load_u8(sub.first + 16 * i)}, {dmin * load_u8(sub.second + 16 * i)}};
  }
};

struct UnitQ6_K {
  using Layout = layout::Q6_K;
  static constexpr int kBits = 6, kHalves = 2, kBlocks = 8;
  static constexpr bool kHasMin = false, kPlain = false;
  const uint8_t* unit;
  F32x16 d;

  explicit UnitQ6_K(const uint8_t* p) : unit(p), d(load_f16_bytes(p + Layout::kD)) {}
  template <int J>
  SlicePair pair(int i) const {
    const uint8_t* values = unit + Layout::kValues + Layout::kBlockBytes * i;
    return nibbles_of<J>(values) | pairs_of<J, 4>(values + Layout::kTops);
  }
  BlockScales<2, false> scales(int i) const {
    const auto* sub = reinterpret_cast<const int8_t*>(unit + Layout::kScales + 32 * i);
    return {{d * load_i8(sub), d * load_i8(sub + 16)}, {}};
  }
};

struct UnitIQ4_XS {
  using Layout = layout::IQ4_XS;
  static constexpr int kBits = 8, kHalves = 1, kBlocks = 8;
  static constexpr bool kHasMin = false, kPlain = false;
  const uint8_t* unit;
  F32x16 d;
  uint8_t sub_scales[128];  // [block][row]

  explicit UnitIQ4_XS(const uint8_t* p) : unit(p), d(load_f16_bytes(p + Layout::kD)) {
    const Bytes64 top = load_nibbles(p + Layout::kScaleTop);
    store_bytes(sub_scales, load_nibbles(p + Layout::kScaleLow) | (shift<-4>(top) & 0x30));
    store_bytes(sub_scales + 64, load_nibbles(p + Layout::kScaleLow + 32) | (shift<-2>(top) & 0x30));
  }
  template <int J>
  SlicePair pair(int i) const {
    return in_code_book(nibbles_of<J>(unit + Layout::kValues + Layout::kBlockBytes * i));
  }
  BlockScales<1, false> scales(int i) const {
    return {{d * (load_u8(sub_scales + 16 * i) - broadcast(Layout::kScaleOffset))}, {}};
  }
};

// f.operator()<Unit>() with the unit of a quantised format; nothing for another.
template <class F>
inline void with_unit(Format format, F f) {
  switch (format) {
    case Format::Q4_0:
      return f.template operator()<UnitQ4_0>();
    case Format::Q4_1:
      return f.template operator()<UnitQ4_1>();
    case Format::Q5_0:
      return f.template operator()<UnitQ5_0>();
    case Format::Q5_1:
      return f.template operator()<UnitQ5_1>();
    case Format::Q8_0:
      return f.template operator()<UnitQ8_0>();
    case Format::Q2_K:
      return f.template operator()<UnitQ2_K>();
    case Format::Q3_K:
      return f.template operator()<UnitQ3_K>();
    case Format::Q4_K:
      return f.template operator()<UnitQ4_K>();
    case Format::Q5_K:
      return f.template operator()<UnitQ5_K>();
    case Format::Q6_K:
      return f.template operator()<UnitQ6_K>();
    case Format::IQ4_NL:
      return f.template operator()<UnitIQ4_NL>();
    case Format::IQ4_XS:
      return f.template operator()<UnitIQ4_XS>();
    case Format::F32:
    case Format::F16:
    case Format::BF16:
      return;
  }
}

}  // namespace cabochon::CABOCHON_ISA
