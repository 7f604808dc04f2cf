// What the units of a packed group (weights/layout.h) give the kernels: any of their blocks of 32 inputs as slices of
// unsigned bytes and as scales in floats, in registers.
//
// A unit has: Layout; kBits, so that its bytes are below 1 << kBits; kBlocks; kHalves, 2 where each half block has
// scales of its own; kHasMin; kPlain, where its slices are stored as they are; pair<J>(block) and
// scales(block).
#pragma once

#include <cstdint>

#include "simd/repeat.h"
#include "weights/layout.h"

namespace cabochon::CABOCHON_ISA {

// Of a block, or of both halves.
template <int Halves, bool HasMin>
struct BlockScales {
  F32x16 scale[Halves];
  F32x16 minimum[HasMin ? Halves : 1];
};

struct SlicePair {
  Bytes64 first, second;  // slices J and J + 4
};

inline F32x16 load_f16_bytes(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }

// ---- Forms of weights ---------------------------------------------------------------------------------------------

template <int J>
CABOCHON_INLINE inline SlicePair nibbles_of(const uint8_t* values) {
  const Bytes64 nibbles = load_bytes(values + layout::kSlice * J);
  return {nibbles & 0x0f, shift<4>(nibbles) & 0x0f};
}

// Pairs of bits, at bits `At` and `At + 1`.
template <int J, int At>
CABOCHON_INLINE inline SlicePair pairs_of(const uint8_t* planes) {
  constexpr uint8_t kMask = 3 << At;
  return {shift<2 * J - At>(load_bytes(planes)) & kMask,
          shift<2 * J - At>(load_bytes(planes + layout::kSlice)) & kMask};
}

// Single bits, at bit `At`.
template <int J, int At>
CABOCHON_INLINE inline SlicePair bits_of(const Bytes64& plane) {
  constexpr uint8_t kMask = 1 << At;
  return {shift<J - At>(plane) & kMask, shift<J + 4 - At>(plane) & kMask};
}

CABOCHON_INLINE inline SlicePair operator|(SlicePair a, SlicePair b) {
  return {a.first | b.first, a.second | b.second};
}

// ---- Scales of 6 bits -----------------------------------------------------------------------------------------------

// layout::SixBitPairs unpacked.
struct SixBits {
  uint8_t first[128], second[128];  // [block][row]

  explicit SixBits(const uint8_t* p) {
    repeat<2>([&](auto half) CABOCHON_INLINE {  // four blocks each
      const Bytes64 low = load_bytes(p + 64 * half);
      const Bytes64 top = load_nibbles(p + layout::SixBitPairs::kTop + 32 * half);
      store_bytes(first + 64 * half, (low & 0x0f) | (shift<-4>(top) & 0x30));
      store_bytes(second + 64 * half, (shift<4>(low) & 0x0f) | (shift<-2>(top) & 0x30));
    });
  }
};

}  // namespace cabochon::CABOCHON_ISA
