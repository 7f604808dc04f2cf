#include "text/strings.h"

#include <cstring>

namespace cabochon {
namespace {

uint64_t load_u64(const uint8_t* p) {
  uint64_t x;
  std::memcpy(&x, p, 8);
  return x;
}

constexpr uint64_t kTopBits = 0x8080808080808080u;

// Bytes of the character that begins here with a top bit set; 0 if there is none.
int64_t character_bytes(const uint8_t* p, int64_t left) {
  const uint8_t first = p[0];
  // The second byte's range tells overlong forms, surrogates and what is too large apart from the rest.
  int64_t size = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    size = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    size = 3;
    low = first == 0xE0 ? 0xA0 : low;
    high = first == 0xED ? 0x9F : high;
  } else if (first >= 0xF0 && first <= 0xF4) {
    size = 4;
    low = first == 0xF0 ? 0x90 : low;
    high = first == 0xF4 ? 0x8F : high;
  }
  if (size == 0 || size > left || p[1] < low || p[1] > high) {
    return 0;
  }
  for (int64_t i = 2; i < size; ++i) {
    if ((p[i] & 0xC0) != 0x80) {
      return 0;
    }
  }
  return size;
}

}  // namespace

bool is_utf8(const uint8_t* bytes, int64_t size) {
  int64_t at = 0;
  while (at < size) {
    if (size - at >= 8 && !(load_u64(bytes + at) & kTopBits)) {
      at += 8;
    } else if (bytes[at] < 0x80) {
      at += 1;
    } else {
      const int64_t character = character_bytes(bytes + at, size - at);
      if (character == 0) {
        return false;
      }
      at += character;
    }
  }
  return true;
}

int64_t find_string_ends(const uint8_t* bytes, int64_t size, int64_t count, int64_t* ends) {
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (size - at < 8) {
      return i;
    }
    const uint64_t length = load_u64(bytes + at);
    at += 8;
    if (length > static_cast<uint64_t>(size - at) || !is_utf8(bytes + at, static_cast<int64_t>(length))) {
      return i;
    }
    at += static_cast<int64_t>(length);
    ends[i] = at;
  }
  return count;
}

}  // namespace cabochon
