// Work on one row at a time: norms, activations, rotation, storing of keys and values, reductions over the vocabulary.
// Exact definitions: docs/arithmetic.md. Where a function has both inputs and outputs, y may be x itself.
#pragma once

#include <cstdint>

#include "kernels/kv.h"

namespace cabochon {

// Heads of one layer, as norm_rope_store treats them.
struct HeadShape {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;         // even, at most kMaxHeadDim
  const float* query_gain;  // [head_dim]; null: queries and keys are not normalised
  const float* key_gain;
  float eps;
  float query_scale;
};

struct RowKernels {
  void (*rms_norm)(const float* x, const float* gain, int64_t n, float eps, float* y);
  // y = h + rms_norm(x)
  void (*add_norm)(const float* h, const float* x, const float* gain, int64_t n, float eps, float* y);
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*gated_gelu)(const float* gate, const float* up, int64_t n, float* y);
  void (*softcap)(const float* x, float cap, int64_t n, float* y);

  // Cosines and sines of `position * inv_freq[i]`.
  void (*angles)(int32_t position, const float* inv_freq, int64_t n, float* cosine, float* sine);

  // One row of [q heads | k heads | v heads]: writes q [heads * head_dim], and keys and values to `slot`
  // (page * kPage + place in the page). False if a finite value does not fit the cache's type; the rest is still
  // stored.
  bool (*norm_rope_store)(const HeadShape& shape, const float* qkv, const float* cosine, const float* sine, float* q,
                          const KVLayer& kv, int64_t slot);

  // For each of `rows` rows of n values, 0 < n <= 16, `stride` floats apart: the largest, NaN if any is not finite.
  void (*peaks)(const float* x, int64_t stride, int64_t rows, int64_t n, float* peak, int64_t peak_stride);

  void (*exp)(const float* x, int64_t n, float* y);
  // n > 0
  float (*log_sum_exp)(const float* x, int64_t n);
  // The k largest of n by (value descending, id ascending), 0 < k <= n. NaN counts as minus infinity.
  void (*top_k)(const float* x, int64_t n, int64_t k, int32_t* ids, float* values);
};

}  // namespace cabochon
