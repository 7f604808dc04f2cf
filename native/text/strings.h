// Strings as files of models hold them.
#pragma once

#include <cstdint>

namespace cabochon {

// Whether the bytes are UTF-8: no overlong form, no surrogate, nothing beyond U+10FFFF.
bool is_utf8(const uint8_t* bytes, int64_t size);

// Strings lie one after another, each as its length in 64 bits, little endian, and so many bytes of UTF-8. Writes where
// each ends, counted from `bytes`, and returns for how many that could be done: less than `count` if one reaches
// beyond `size` or is not UTF-8.
int64_t find_string_ends(const uint8_t* bytes, int64_t size, int64_t count, int64_t* ends);

}  // namespace cabochon
