#include "program/rough_activations.h"

#include <algorithm>
#include <cmath>

namespace cabochon {
namespace {

// The nearest whole number, ties to even, of a number that is not larger than 2^22.
float nearest(float x) {
  constexpr float kOnesAreTheLastBit = 0x1.8p23f;
  return (x + kOnesAreTheLastBit) - kOnesAreTheLastBit;
}

// What docs/arithmetic.md section 3 makes of a block: s * q, exactly. All NaN if a value is not finite.
void as_quantized(const float* x, bool two_terms, double* out) {
  const float limit = two_terms ? 32512.0f : 127.0f;
  float a = 0.0f, not_finite = 0.0f;
  for (int i = 0; i < kBlock; ++i) {
    a = std::max(a, std::fabs(x[i]));
    not_finite += x[i] * 0.0f;
  }
  const bool some = a >= 0x1p-100f;
  const float scale = some ? a / limit : 0.0f, inverse = some ? limit / a : 0.0f;
  for (int i = 0; i < kBlock; ++i) {
    out[i] = not_finite == 0.0f ? static_cast<double>(scale) * static_cast<double>(nearest(x[i] * inverse))
                                : static_cast<double>(not_finite);
  }
}

// The largest that the values which one 16-bit sum takes in add up to, positive or negative ones.
double largest_sum(const double* x) {
  double sums[4] = {};
  for (int i = 0; i < kBlock; ++i) {
    sums[(i / 2 % 2) * 2 + (x[i] < 0.0)] += std::fabs(x[i]);
  }
  return *std::max_element(sums, sums + 4);
}

float norm(const double* x) {
  double squares = 0.0;
  for (int i = 0; i < kBlock; ++i) {
    squares += x[i] * x[i];
  }
  return static_cast<float>(std::sqrt(squares));
}

}  // namespace

RoughActivations::RoughActivations(int64_t max_cols, bool two_terms) : two_terms_(two_terms) {
  const auto values = static_cast<size_t>(kRoughRows * max_cols);
  q_ = Memory(values);
  scales_ = Memory(values / kBlock * sizeof(ActivationScale));
  sums_ = Memory(values / (kBlock / 2) * sizeof(int32_t));
  errors_ = Memory(values / kBlock * sizeof(float));
  sizes_ = Memory(values / kBlock * sizeof(float));
}

void RoughActivations::quantize(int64_t row, const float* x, int64_t cols) {
  constexpr int kOfOneSum = kBlock / 2;  // inputs; rounding may add half to each
  int8_t* q = q_.as<int8_t>() + row * cols;
  for (int64_t block = 0; block < cols / kBlock; ++block, x += kBlock, q += kBlock) {
    double values[kBlock], lost[kBlock];
    as_quantized(x, two_terms_, values);
    const double sum = largest_sum(values);
    const auto scale = static_cast<float>(sum / (kRoughLimit - kOfOneSum / 2));
    const double inverse = sum >= 0x1p-100 ? 1.0 / static_cast<double>(scale) : 0.0;
    int32_t sums[2] = {0, 0};
    for (int i = 0; i < kBlock; ++i) {
      const float rounded = inverse > 0.0 ? nearest(static_cast<float>(values[i] * inverse)) : 0.0f;
      q[i] = static_cast<int8_t>(rounded);
      sums[i / kOfOneSum] += q[i];
      lost[i] = values[i] - static_cast<double>(scale) * static_cast<double>(rounded);
    }
    const auto minus_scaled = [&](int32_t n) { return -(scale * static_cast<float>(n)); };
    scales_.as<ActivationScale>()[row * (cols / kBlock) + block] = {
        scale, minus_scaled(sums[0] + sums[1]), {minus_scaled(sums[0]), minus_scaled(sums[1])}};
    std::copy_n(sums, 2, sums_.as<int32_t>() + row * (cols / kOfOneSum) + 2 * block);
    const float error = norm(lost);
    errors_.as<float>()[block * kRoughRows + row] = error;
    sizes_.as<float>()[block * kRoughRows + row] = 2.0f * norm(values) + error;
  }
}

}  // namespace cabochon
