// Functions over sixteen lanes, and a few in binary64 (docs/arithmetic.md section 2). Included after one of simd/*.h.
#pragma once

namespace cabochon::CABOCHON_ISA {

inline constexpr float kInfinity = __builtin_inff();

// The n lanes of a block that exist; a whole block is the usual case and needs no mask.
inline F32x16 load_up_to(const float* p, int64_t n) { return n >= 16 ? load(p) : load_n(p, static_cast<int>(n)); }
inline void store_up_to(float* p, F32x16 a, int64_t n) {
  if (n >= 16) {
    store(p, a);
  } else {
    store_n(p, a, static_cast<int>(n));
  }
}

inline F32x16 exp(F32x16 x) {
  const I32x16 n = round_i32(x * broadcast(1.44269504f));
  const F32x16 whole = to_f32(n);
  F32x16 r = fma(whole, broadcast(-0.693359375f), x);
  r = fma(whole, broadcast(2.12194440e-4f), r);
  F32x16 p = broadcast(1.0f / 5040);
  p = fma(p, r, broadcast(1.0f / 720));
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  const F32x16 y = select(less(x, broadcast(-87.0f)), broadcast(0.0f), p * pow2(n));
  return select(less(broadcast(88.0f), x), broadcast(kInfinity), y);
}

inline float exp(float x) {
  float y[16];
  store(y, exp(broadcast(x)));
  return y[0];
}

inline F32x16 gelu(F32x16 x) {
  const F32x16 one = broadcast(1.0f);
  const F32x16 u = x * fma(broadcast(0.044715f) * x, x, one);
  return x / (one + exp(negate(u * broadcast(1.59576912f))));
}

inline F32x16 tanh(F32x16 y) {
  const F32x16 one = broadcast(1.0f);
  const F32x16 t = exp(broadcast(-2.0f) * abs(y));
  return copysign((one - t) / (one + t), y);
}

inline F32x16 softcap(F32x16 x, F32x16 cap) { return cap * tanh(x / cap); }

inline void sin_cos(float angle, float* sine, float* cosine) {
  const double x = angle;
  const double n = __builtin_nearbyint(x * 0x1.45f306dc9c883p-1);
  double r = __builtin_fma(-n, 0x1.921fb54442d18p+0, x);
  r = __builtin_fma(-n, 0x1.1a62633145c07p-54, r);
  const double z = r * r;
  double s = -1.0 / 1307674368000.0;
  s = __builtin_fma(s, z, 1.0 / 6227020800.0);
  s = __builtin_fma(s, z, -1.0 / 39916800.0);
  s = __builtin_fma(s, z, 1.0 / 362880.0);
  s = __builtin_fma(s, z, -1.0 / 5040.0);
  s = __builtin_fma(s, z, 1.0 / 120.0);
  s = __builtin_fma(s, z, -1.0 / 6.0);
  s = __builtin_fma(s, z, 1.0) * r;
  double c = 1.0 / 20922789888000.0;
  c = __builtin_fma(c, z, -1.0 / 87178291200.0);
  c = __builtin_fma(c, z, 1.0 / 479001600.0);
  c = __builtin_fma(c, z, -1.0 / 3628800.0);
  c = __builtin_fma(c, z, 1.0 / 40320.0);
  c = __builtin_fma(c, z, -1.0 / 720.0);
  c = __builtin_fma(c, z, 1.0 / 24.0);
  c = __builtin_fma(c, z, -0.5);
  c = __builtin_fma(c, z, 1.0);
  const int64_t quadrant = static_cast<int64_t>(n) & 3;
  const double sin_r = quadrant & 1 ? c : s;
  const double cos_r = quadrant & 1 ? s : c;
  *sine = static_cast<float>(quadrant & 2 ? -sin_r : sin_r);
  *cosine = static_cast<float>(quadrant == 1 || quadrant == 2 ? -cos_r : cos_r);
}

inline float log(float x) {
  if (!(x > 0.0f) || x > 3.4028234664e38f) {
    return x == 0.0f ? -kInfinity : x > 0.0f ? x : __builtin_nanf("");
  }
  // Every binary32 is a normal binary64: the exponent is in its bits.
  double m = x;
  uint64_t bits;
  std::memcpy(&bits, &m, 8);
  int64_t e = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  std::memcpy(&m, &bits, 8);
  if (m >= 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    e += 1;
  }
  const double f = (m - 1.0) / (m + 1.0);
  const double z = f * f;
  double p = 1.0 / 21;
  for (int n = 19; n >= 1; n -= 2) {
    p = __builtin_fma(p, z, 1.0 / n);
  }
  return static_cast<float>(__builtin_fma(static_cast<double>(e), 0x1.62e42fefa39efp-1, 2.0 * f * p));
}

}  // namespace cabochon::CABOCHON_ISA
