#include "reference/linear.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/blocks.h"
#include "reference/functions.h"

namespace cabochon::reference {
namespace {

uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

float f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
float bf16(const uint8_t* p) { return bf16_to_f32(load_u16(p)); }
float f32(const uint8_t* p) {
  float x;
  std::memcpy(&x, p, 4);
  return x;
}

float float_weight(Format format, const uint8_t* row, int64_t k) {
  switch (format) {
    case Format::F16:
      return f16(row + 2 * k);
    case Format::BF16:
      return bf16(row + 2 * k);
    default:
      return f32(row + 4 * k);
  }
}

int32_t dot16(const int* w, const int32_t* q) {
  int32_t sum = 0;
  for (int k = 0; k < 16; ++k) {
    sum += w[k] * q[k];
  }
  return sum;
}

float quantized_dot(Format format, const uint8_t* row, int64_t cols, const int32_t* q, const float* scales,
                    const int32_t* half_sums) {
  const bool minima = has_minima(format);
  float acc = 0.0f;
  for (int64_t b = 0; b < cols / 32; ++b) {
    const Block block = block_of(format, row, b);
    const float s = scales[b];
    const int32_t first = dot16(block.w, q + 32 * b), second = dot16(block.w + 16, q + 32 * b + 16);
    const int32_t first_sum = half_sums[2 * b], second_sum = half_sums[2 * b + 1];
    if (has_half_scales(format)) {
      acc = std::fma(static_cast<float>(first), block.scale[0] * s, acc);
      acc = minima ? std::fma(-block.minimum[0], s * static_cast<float>(first_sum), acc) : acc;
      acc = std::fma(static_cast<float>(second), block.scale[1] * s, acc);
      acc = minima ? std::fma(-block.minimum[1], s * static_cast<float>(second_sum), acc) : acc;
    } else {
      acc = std::fma(static_cast<float>(first + second), block.scale[0] * s, acc);
      acc = minima ? std::fma(-block.minimum[0], s * static_cast<float>(first_sum + second_sum), acc) : acc;
    }
  }
  return acc;
}

float float_dot(Format format, const uint8_t* row, int64_t cols, const float* x) {
  float acc = 0.0f;
  for (int64_t k = 0; k < cols; ++k) {
    acc = std::fma(float_weight(format, row, k), x[k], acc);
  }
  return acc;
}

}  // namespace

void quantize_row(const float* x, int64_t cols, bool two_terms, int32_t* q, float* scales, int32_t* half_sums) {
  const float limit = two_terms ? 32512.0f : 127.0f;
  for (int64_t b = 0; b < cols / 32; ++b) {
    float a = 0.0f;
    bool finite = true;
    for (int64_t k = 32 * b; k < 32 * b + 32; ++k) {
      finite = finite && std::isfinite(x[k]);
      a = std::fmax(a, std::fabs(x[k]));
    }
    const bool zero = !finite || a < 0x1p-100f;
    scales[b] = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : a / limit;
    half_sums[2 * b] = half_sums[2 * b + 1] = 0;
    for (int64_t k = 32 * b; k < 32 * b + 32; ++k) {
      q[k] = zero ? 0 : static_cast<int32_t>(std::nearbyint(x[k] * (limit / a)));
      half_sums[k / 16] += q[k];
    }
  }
}

void linear(Format format, const uint8_t* file, int64_t rows, int64_t cols, const float* x, int64_t tokens,
            bool two_terms, float* y) {
  const auto row_bytes = static_cast<int64_t>(file_row_bytes(format, cols));
  std::vector<int32_t> q(static_cast<size_t>(cols)), half_sums(static_cast<size_t>(cols / 16));
  std::vector<float> scales(static_cast<size_t>(cols / 32));
  for (int64_t t = 0; t < tokens; ++t) {
    if (is_quantized(format)) {
      quantize_row(x + t * cols, cols, two_terms, q.data(), scales.data(), half_sums.data());
    }
    for (int64_t n = 0; n < rows; ++n) {
      const uint8_t* row = file + n * row_bytes;
      y[t * rows + n] = is_quantized(format)
                            ? quantized_dot(format, row, cols, q.data(), scales.data(), half_sums.data())
                            : float_dot(format, row, cols, x + t * cols);
    }
  }
}

void dequantize_row(Format format, const uint8_t* file_row, int64_t cols, float scale, float* out) {
  for (int64_t k = 0; k < cols; ++k) {
    float weight;
    if (is_quantized(format)) {
      const Block block = block_of(format, file_row, k / 32);
      weight = block.scale[k % 32 / 16] * static_cast<float>(block.w[k % 32]);
      if (has_minima(format)) {
        weight = weight - block.minimum[k % 32 / 16];
      }
    } else {
      weight = float_weight(format, file_row, k);
    }
    out[k] = weight * scale;
  }
}

}  // namespace cabochon::reference
