// Sixteen lanes in plain C++: the instruction set of every machine. Also the definition the others must equal.
//
// A file that includes one of simd/*.h first defines CABOCHON_ISA, the namespace its kernels live in. Everything here
// has internal meaning only; no standard library templates are instantiated, so that no code built for a newer
// instruction set can be shared with files built for an older one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace cabochon::CABOCHON_ISA {

struct F32x16 {
  float v[16];
};
struct I32x16 {
  int32_t v[16];
};
struct Mask16 {
  bool v[16];
};

#define CABOCHON_EACH(type, expression) \
  type r;                               \
  for (int i = 0; i < 16; ++i) {        \
    r.v[i] = (expression);              \
  }                                     \
  return r

inline F32x16 broadcast(float x) { CABOCHON_EACH(F32x16, x); }
inline I32x16 broadcast_i32(int32_t x) { CABOCHON_EACH(I32x16, x); }
inline F32x16 load(const float* p) { CABOCHON_EACH(F32x16, p[i]); }
// The first n lanes; the rest are +0 and their memory is not touched.
inline F32x16 load_n(const float* p, int n) { CABOCHON_EACH(F32x16, i < n ? p[i] : 0.0f); }
inline void store(float* p, F32x16 a) { std::memcpy(p, a.v, sizeof a.v); }
inline void store_n(float* p, F32x16 a, int n) {
  for (int i = 0; i < n; ++i) {
    p[i] = a.v[i];
  }
}
inline void store_i32(int32_t* p, I32x16 a) { std::memcpy(p, a.v, sizeof a.v); }

inline F32x16 operator+(F32x16 a, F32x16 b) { CABOCHON_EACH(F32x16, a.v[i] + b.v[i]); }
inline F32x16 operator-(F32x16 a, F32x16 b) { CABOCHON_EACH(F32x16, a.v[i] - b.v[i]); }
inline F32x16 operator*(F32x16 a, F32x16 b) { CABOCHON_EACH(F32x16, a.v[i] * b.v[i]); }
inline F32x16 operator/(F32x16 a, F32x16 b) { CABOCHON_EACH(F32x16, a.v[i] / b.v[i]); }
// Out of line, for compilers unroll it.
[[gnu::noinline]] inline F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
#ifdef __FP_FAST_FMAF
  CABOCHON_EACH(F32x16, std::fma(a.v[i], b.v[i], c.v[i]));
#else
  // Here std::fma is a slow call. In binary64 the product is exact and the sum rounds once; rounding that to binary32
  // is a second time only if it lies exactly between two floats, or where floats are subnormal.
  double sum[16];
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    sum[i] = static_cast<double>(a.v[i]) * static_cast<double>(b.v[i]) + static_cast<double>(c.v[i]);
    r.v[i] = static_cast<float>(sum[i]);
  }
  uint32_t halves[32];  // low and high
  std::memcpy(halves, sum, sizeof halves);
  uint32_t doubtful = 0;
  for (int i = 0; i < 16; ++i) {
    const uint32_t fraction = halves[2 * i] & 0x1fffffffu, exponent = halves[2 * i + 1] >> 20 & 0x7ffu;
    doubtful |= (fraction == 0x10000000u ? 1u : 0u) | (exponent - 1u < 896u ? 1u : 0u);
  }
  if (doubtful != 0) {
    for (int i = 0; i < 16; ++i) {
      r.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
    }
  }
  return r;
#endif
}
// max and min return b where the comparison is unordered, as the x86 instructions do.
inline F32x16 max(F32x16 a, F32x16 b) { CABOCHON_EACH(F32x16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline F32x16 min(F32x16 a, F32x16 b) { CABOCHON_EACH(F32x16, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline F32x16 sqrt(F32x16 a) { CABOCHON_EACH(F32x16, std::sqrt(a.v[i])); }
inline F32x16 abs(F32x16 a) { CABOCHON_EACH(F32x16, std::fabs(a.v[i])); }
inline F32x16 negate(F32x16 a) { CABOCHON_EACH(F32x16, -a.v[i]); }
// Magnitude of a with the sign of b.
inline F32x16 copysign(F32x16 a, F32x16 b) { CABOCHON_EACH(F32x16, std::copysign(a.v[i], b.v[i])); }

inline Mask16 less(F32x16 a, F32x16 b) { CABOCHON_EACH(Mask16, a.v[i] < b.v[i]); }
// Lanes first <= i < last.
inline Mask16 lanes(int first, int last) { CABOCHON_EACH(Mask16, i >= first && i < last); }
inline F32x16 select(Mask16 m, F32x16 yes, F32x16 no) { CABOCHON_EACH(F32x16, m.v[i] ? yes.v[i] : no.v[i]); }
inline bool any(Mask16 m) {
  for (const bool lane : m.v) {
    if (lane) {
      return true;
    }
  }
  return false;
}

inline F32x16 to_f32(I32x16 a) { CABOCHON_EACH(F32x16, static_cast<float>(a.v[i])); }
// Nearest even. Outside int32 (and for NaN) the result is INT32_MIN, as the x86 instructions give.
inline int32_t round_i32(float x) {
  const float magnitude = std::fabs(x);
  // Adding 2^23 leaves no bit for a fraction; from there on floats are integers.
  const float whole = magnitude < 8388608.0f ? (magnitude + 8388608.0f) - 8388608.0f : magnitude;
  const bool fits = magnitude < 2147483648.0f;
  const auto integer = static_cast<int32_t>(fits ? whole : 0.0f);
  return fits ? (x < 0.0f ? -integer : integer) : INT32_MIN;
}
inline I32x16 round_i32(F32x16 a) { CABOCHON_EACH(I32x16, round_i32(a.v[i])); }
inline I32x16 operator+(I32x16 a, I32x16 b) { CABOCHON_EACH(I32x16, a.v[i] + b.v[i]); }
inline I32x16 operator-(I32x16 a, I32x16 b) { CABOCHON_EACH(I32x16, a.v[i] - b.v[i]); }
// 2^n for n in [-126, 127], built from bits.
inline F32x16 pow2(I32x16 n) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits = static_cast<uint32_t>(n.v[i] + 127) << 23;
    std::memcpy(&r.v[i], &bits, 4);
  }
  return r;
}

inline float f16_to_f32(uint16_t h) {  // a NaN is made quiet, as hardware does
  const uint32_t magnitude = h & 0x7fffu;
  const uint32_t shifted = magnitude << 13;
  float scaled;  // the exponents' biases differ by 112; exact for subnormals too
  std::memcpy(&scaled, &shifted, 4);
  scaled *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &scaled, 4);
  bits = magnitude >= 0x7c00u ? shifted | 0x7f800000u | (magnitude > 0x7c00u ? 0x400000u : 0u) : bits;
  bits |= static_cast<uint32_t>(h & 0x8000u) << 16;
  float r;
  std::memcpy(&r, &bits, 4);
  return r;
}
inline uint16_t f32_to_f16(float x) {  // nearest even; subnormals kept; beyond 65504 + half a step: infinity
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {
    return static_cast<uint16_t>(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) {  // becomes subnormal: let the float adder round at 2^-24
    float m;
    std::memcpy(&m, &magnitude, 4);
    m += 0.5f;
    std::memcpy(&magnitude, &m, 4);
    return static_cast<uint16_t>(sign | (magnitude - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}
inline float bf16_to_f32(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float r;
  std::memcpy(&r, &bits, 4);
  return r;
}
inline uint16_t f32_to_bf16(float x) {  // nearest even; NaN stays NaN
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline F32x16 load_f16(const uint16_t* p) { CABOCHON_EACH(F32x16, f16_to_f32(p[i])); }
inline F32x16 load_bf16(const uint16_t* p) { CABOCHON_EACH(F32x16, bf16_to_f32(p[i])); }
inline F32x16 load_i8(const int8_t* p) { CABOCHON_EACH(F32x16, static_cast<float>(p[i])); }

// The fixed tree of docs/arithmetic.md section 1.
inline float tree_sum(F32x16 a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) {
      a.v[i] = a.v[i] + a.v[i + step];
    }
  }
  return a.v[0];
}
inline float tree_max(F32x16 a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) {
      a.v[i] = a.v[i] > a.v[i + step] ? a.v[i] : a.v[i + step];
    }
  }
  return a.v[0];
}

#undef CABOCHON_EACH

}  // namespace cabochon::CABOCHON_ISA
