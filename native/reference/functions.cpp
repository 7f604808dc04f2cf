#include "reference/functions.h"

#include <bit>
#include <cmath>
#include <limits>

namespace cabochon::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double factorial(int n) { return n <= 1 ? 1.0 : n * factorial(n - 1); }

}  // namespace

float lane_sum(const float* x, int64_t n) {
  float lane[16] = {};
  for (int64_t k = 0; k < n; ++k) {
    lane[k % 16] = lane[k % 16] + x[k];
  }
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) {
      lane[i] = lane[i] + lane[i + half];
    }
  }
  return lane[0];
}

float exp(float x) {
  if (std::isnan(x)) {
    return x;
  }
  if (x < -87.0f) {
    return 0.0f;
  }
  if (x > 88.0f) {
    return kInfinity;
  }
  const float n = std::nearbyint(x * 1.44269504f);
  const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, x));
  float p = static_cast<float>(1.0 / factorial(7));
  for (int i = 6; i >= 0; --i) {
    p = std::fma(p, r, static_cast<float>(1.0 / factorial(i)));
  }
  return p * std::ldexp(1.0f, static_cast<int>(n));
}

float gelu(float x) {
  const float u = x * std::fma(0.044715f * x, x, 1.0f);
  const float w = u * 1.59576912f;
  return x / (1.0f + exp(-w));
}

float softcap(float x, float cap) {
  const float y = x / cap;
  const float t = exp(-2.0f * std::fabs(y));
  return cap * std::copysign((1.0f - t) / (1.0f + t), y);
}

float log(float x) {
  if (x == 0.0f) {
    return -kInfinity;
  }
  if (!(x > 0.0f)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (x == kInfinity) {
    return x;
  }
  int e;
  double m = std::frexp(static_cast<double>(x), &e);  // in [1/2, 1)
  if (m < std::sqrt(0.5)) {
    m *= 2;
    e -= 1;
  }
  const double f = (m - 1) / (m + 1);
  double series = 1.0 / 21;
  for (int n = 19; n >= 1; n -= 2) {
    series = std::fma(series, f * f, 1.0 / n);
  }
  return static_cast<float>(std::fma(static_cast<double>(e), std::log(2.0), 2 * (f * series)));
}

void sin_cos(float angle, float* sine, float* cosine) {
  const double x = angle;
  const double n = std::nearbyint(x * (2 / 3.14159265358979323846));
  double r = std::fma(-n, 1.5707963267948966, x);
  r = std::fma(-n, 6.123233995736766e-17, r);
  double s = -1 / factorial(15), c = 1 / factorial(16);
  for (int i = 13, sign = 1; i >= 1; i -= 2, sign = -sign) {
    s = std::fma(s, r * r, sign / factorial(i));
  }
  for (int i = 14, sign = -1; i >= 0; i -= 2, sign = -sign) {
    c = std::fma(c, r * r, sign / factorial(i));
  }
  s *= r;
  double sine_of = 0, cosine_of = 0;
  switch (static_cast<long long>(n) & 3) {
    case 0:
      sine_of = s, cosine_of = c;
      break;
    case 1:
      sine_of = c, cosine_of = -s;
      break;
    case 2:
      sine_of = -s, cosine_of = -c;
      break;
    case 3:
      sine_of = -c, cosine_of = s;
      break;
  }
  *sine = static_cast<float>(sine_of);
  *cosine = static_cast<float>(cosine_of);
}

float f16_to_f32(uint16_t h) {
  const int exponent = (h >> 10) & 31, fraction = h & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = fraction ? std::numeric_limits<float>::quiet_NaN() : kInfinity;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  }
  return h & 0x8000 ? -magnitude : magnitude;
}

uint16_t f32_to_f16(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) {
    return static_cast<uint16_t>(sign | 0x7e00);
  }
  const float a = std::fabs(x);
  if (a >= 65520.0f) {
    return static_cast<uint16_t>(sign | 0x7c00);
  }
  // The distance of neighbouring float16 values around a is 2^step; in units of it they are integers, and in bits they
  // follow one another.
  const int exponent = a >= 0x1p-14f ? std::ilogb(a) : -14;
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(a, 10 - exponent)));
  return static_cast<uint16_t>(sign | (units + ((exponent + 14) << 10)));
}

float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

uint16_t f32_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) {
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  }
  const uint32_t low = bits & 0xffff;
  const uint32_t high = bits >> 16;
  const bool up = low > 0x8000 || (low == 0x8000 && (high & 1));
  return static_cast<uint16_t>(high + (up ? 1 : 0));
}

}  // namespace cabochon::reference
