// Random numbers that depend on a key and a counter only (docs/arithmetic.md section 8).
#pragma once

#include <cstdint>

namespace cabochon {

// The first word of Philox 4x32-10. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
inline uint32_t philox(uint64_t key, uint32_t position, uint32_t choice) {
  uint32_t c[4] = {position, choice, 0, 0};
  uint32_t k[2] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i) {
      c[i] = next[i];
    }
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c[0];
}

// In (0, 1), exact: 25 bits.
inline double philox_uniform(uint64_t key, uint32_t position, uint32_t choice) {
  return (static_cast<double>(philox(key, position, choice) >> 8) + 0.5) * 0x1p-24;
}

}  // namespace cabochon
