#include "reference/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/functions.h"

namespace cabochon::reference {
namespace {

float inverse_rms(const float* x, int64_t n, float eps) {
  float lane[16] = {};
  for (int64_t k = 0; k < n; ++k) {
    lane[k % 16] = std::fma(x[k], x[k], lane[k % 16]);
  }
  return 1.0f / std::sqrt(lane_sum(lane, 16) / static_cast<float>(n) + eps);
}

void rms_norm(const float* x, const float* gain, int64_t n, float eps, float* y) {
  const float r = inverse_rms(x, n, eps);
  for (int64_t k = 0; k < n; ++k) {
    y[k] = (x[k] * r) * gain[k];
  }
}

void add_norm(const float* h, const float* x, const float* gain, int64_t n, float eps, float* y) {
  const float r = inverse_rms(x, n, eps);
  for (int64_t k = 0; k < n; ++k) {
    y[k] = h[k] + (x[k] * r) * gain[k];
  }
}

void add(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t k = 0; k < n; ++k) {
    y[k] = a[k] + b[k];
  }
}

void gated_gelu(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t k = 0; k < n; ++k) {
    y[k] = gelu(gate[k]) * up[k];
  }
}

void softcap_row(const float* x, float cap, int64_t n, float* y) {
  for (int64_t k = 0; k < n; ++k) {
    y[k] = softcap(x[k], cap);
  }
}

void peaks(const float* x, int64_t stride, int64_t rows, int64_t n, float* peak, int64_t peak_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* values = x + row * stride;
    float best = values[0];
    for (int64_t i = 0; i < n; ++i) {
      best = std::isfinite(values[i]) ? std::max(best, values[i]) : std::numeric_limits<float>::quiet_NaN();
      if (best != best) {
        break;
      }
    }
    peak[row * peak_stride] = best;
  }
}

void exp_row(const float* x, int64_t n, float* y) {
  for (int64_t k = 0; k < n; ++k) {
    y[k] = exp(x[k]);
  }
}

void angles(int32_t position, const float* inv_freq, int64_t n, float* cosine, float* sine) {
  for (int64_t i = 0; i < n; ++i) {
    sin_cos(static_cast<float>(position) * inv_freq[i], &sine[i], &cosine[i]);
  }
}

std::vector<float> rotated(const float* x, const float* cosine, const float* sine, int64_t dim) {
  const int64_t half = dim / 2;
  std::vector<float> y(static_cast<size_t>(dim));
  for (int64_t i = 0; i < half; ++i) {
    y[static_cast<size_t>(i)] = std::fma(x[i], cosine[i], -(x[i + half] * sine[i]));
    y[static_cast<size_t>(i + half)] = std::fma(x[i + half], cosine[i], x[i] * sine[i]);
  }
  return y;
}

// Where key or value element e of one head lies: `element(e)` in its array, `scale(e)` in its scales.
struct Place {
  int64_t page, kv_head, place;
  const KVLayer& kv;
  bool keys;

  int64_t head() const { return page * kv.kv_heads + kv_head; }
  int64_t at(int64_t e, int64_t width) const {
    return keys ? (head() * width + e) * kPage + place : (head() * kPage + place) * width + e;
  }
  int64_t element(int64_t e) const { return at(e, kv.head_dim); }
  int64_t scale(int64_t e) const { return at(e / kScaleBlock, kv.scale_blocks()); }
};

bool store_head(const float* x, const Place& to) {
  const KVLayer& kv = to.kv;
  void* array = to.keys ? kv.keys : kv.values;
  bool fits = true;
  for (int64_t e = 0; e < kv.head_dim; ++e) {
    const int64_t at = to.element(e);
    if (kv.type == KVType::F16) {
      fits = fits && !(std::isfinite(x[e]) && std::fabs(x[e]) > 65504.0f);
      static_cast<uint16_t*>(array)[at] = f32_to_f16(x[e]);
    } else if (kv.type == KVType::BF16) {
      static_cast<uint16_t*>(array)[at] = f32_to_bf16(x[e]);
    } else if (kv.type == KVType::F32) {
      static_cast<float*>(array)[at] = x[e];
    } else {
      const int64_t first = e / kScaleBlock * kScaleBlock;
      const int64_t last = std::min(first + kScaleBlock, kv.head_dim);
      float a = 0;
      bool finite = true;
      for (int64_t i = first; i < last; ++i) {
        finite = finite && std::isfinite(x[i]);
        a = std::max(a, std::fabs(x[i]));
      }
      float* scale = (to.keys ? kv.key_scales : kv.value_scales) + to.scale(e);
      int8_t* q = static_cast<int8_t*>(array) + at;
      if (!finite || a < 0x1p-100f) {
        *scale = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
        *q = 0;
      } else {
        *scale = a / 127.0f;
        *q = static_cast<int8_t>(std::nearbyint(x[e] * (127.0f / a)));
      }
    }
  }
  return fits;
}

bool norm_rope_store(const HeadShape& shape, const float* qkv, const float* cosine, const float* sine, float* q,
                     const KVLayer& kv, int64_t slot) {
  const int64_t dim = shape.head_dim;
  std::vector<float> normed(static_cast<size_t>(dim));
  auto turned = [&](const float* x, const float* gain) {
    if (gain) {
      rms_norm(x, gain, dim, shape.eps, normed.data());
      x = normed.data();
    }
    return rotated(x, cosine, sine, dim);
  };
  for (int64_t h = 0; h < shape.heads; ++h) {
    const std::vector<float> y = turned(qkv + h * dim, shape.query_gain);
    for (int64_t e = 0; e < dim; ++e) {
      q[h * dim + e] = y[static_cast<size_t>(e)] * shape.query_scale;
    }
  }
  bool fits = true;
  for (int64_t g = 0; g < shape.kv_heads; ++g) {
    const std::vector<float> key = turned(qkv + (shape.heads + g) * dim, shape.key_gain);
    const float* value = qkv + (shape.heads + shape.kv_heads + g) * dim;
    const bool key_fits = store_head(key.data(), {slot / kPage, g, slot % kPage, kv, true});
    const bool value_fits = store_head(value, {slot / kPage, g, slot % kPage, kv, false});
    fits = fits && key_fits && value_fits;
  }
  return fits;
}

float log_sum_exp(const float* x, int64_t n) {
  float m = 0, l = 0;
  for (int64_t first = 0; first < n; first += 1024) {
    const int64_t last = std::min<int64_t>(first + 1024, n);
    const float chunk_m = *std::max_element(x + first, x + last);
    std::vector<float> p;
    for (int64_t k = first; k < last; ++k) {
      p.push_back(exp(x[k] - chunk_m));
    }
    const float chunk_l = lane_sum(p.data(), last - first);
    if (first == 0) {
      m = chunk_m;
      l = chunk_l;
      continue;
    }
    const float merged = std::max(m, chunk_m);
    const float a = exp(m - merged), b = exp(chunk_m - merged);
    l = std::fma(l, a, chunk_l * b);
    m = merged;
  }
  return m + log(l);
}

void top_k(const float* x, int64_t n, int64_t k, int32_t* ids, float* values) {
  auto ranked = [x](int32_t id) { return std::isnan(x[id]) ? -std::numeric_limits<float>::infinity() : x[id]; };
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return ranked(a) > ranked(b); });
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = order[static_cast<size_t>(i)];
    values[i] = x[ids[i]];
  }
}

}  // namespace

float stored(const KVLayer& kv, const void* array, const float* scales, int64_t index, int64_t scale_index) {
  switch (kv.type) {
    case KVType::F16:
      return f16_to_f32(static_cast<const uint16_t*>(array)[index]);
    case KVType::BF16:
      return bf16_to_f32(static_cast<const uint16_t*>(array)[index]);
    case KVType::F32:
      return static_cast<const float*>(array)[index];
    case KVType::Int8:
      return static_cast<float>(static_cast<const int8_t*>(array)[index]) * scales[scale_index];
  }
  return 0;
}

RowKernels row_kernels() {
  return {rms_norm,        add_norm, add,     gated_gelu,  softcap_row, angles,
          norm_rope_store, peaks,    exp_row, log_sum_exp, top_k};
}

}  // namespace cabochon::reference
