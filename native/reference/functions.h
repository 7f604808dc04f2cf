// docs/arithmetic.md sections 1 and 2, one value at a time. Slow, and the judge of every kernel.
#pragma once

#include <cstdint>

namespace cabochon::reference {

// Sum of x[0..n) in sixteen lanes and one tree.
float lane_sum(const float* x, int64_t n);

float exp(float x);
float gelu(float x);
float softcap(float x, float cap);
float log(float x);
void sin_cos(float angle, float* sine, float* cosine);

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float x);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float x);

}  // namespace cabochon::reference
