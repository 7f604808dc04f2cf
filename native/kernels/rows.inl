// The row kernels over sixteen lanes. Included after one of simd/*.h.
#pragma once

#include "kernels/math.inl"
#include "kernels/rows.h"

namespace cabochon::CABOCHON_ISA {

// 1 / sqrt(mean(x^2) + eps)
inline float inverse_rms(const float* x, int64_t n, float eps) {
  F32x16 s = broadcast(0.0f);
  for (int64_t k = 0; k < n; k += 16) {
    const F32x16 v = load_up_to(x + k, n - k);
    s = fma(v, v, s);
  }
  float root[16];
  store(root, sqrt(broadcast(tree_sum(s) / static_cast<float>(n) + eps)));
  return 1.0f / root[0];
}

inline void rms_norm(const float* x, const float* gain, int64_t n, float eps, float* y) {
  const F32x16 r = broadcast(inverse_rms(x, n, eps));
  for (int64_t k = 0; k < n; k += 16) {
    store_up_to(y + k, (load_up_to(x + k, n - k) * r) * load_up_to(gain + k, n - k), n - k);
  }
}

inline void add_norm(const float* h, const float* x, const float* gain, int64_t n, float eps, float* y) {
  const F32x16 r = broadcast(inverse_rms(x, n, eps));
  for (int64_t k = 0; k < n; k += 16) {
    const F32x16 normed = (load_up_to(x + k, n - k) * r) * load_up_to(gain + k, n - k);
    store_up_to(y + k, load_up_to(h + k, n - k) + normed, n - k);
  }
}

inline void add(const float* a, const float* b, int64_t n, float* y) {
  for (int64_t k = 0; k < n; k += 16) {
    store_up_to(y + k, load_up_to(a + k, n - k) + load_up_to(b + k, n - k), n - k);
  }
}

inline void gated_gelu(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t k = 0; k < n; k += 16) {
    store_up_to(y + k, gelu(load_up_to(gate + k, n - k)) * load_up_to(up + k, n - k), n - k);
  }
}

inline void softcap_row(const float* x, float cap, int64_t n, float* y) {
  for (int64_t k = 0; k < n; k += 16) {
    store_up_to(y + k, softcap(load_up_to(x + k, n - k), broadcast(cap)), n - k);
  }
}

inline void exp_row(const float* x, int64_t n, float* y) {
  for (int64_t k = 0; k < n; k += 16) {
    store_up_to(y + k, exp(load_up_to(x + k, n - k)), n - k);
  }
}

inline void angles(int32_t position, const float* inv_freq, int64_t n, float* cosine, float* sine) {
  const float p = static_cast<float>(position);
  for (int64_t i = 0; i < n; ++i) {
    sin_cos(p * inv_freq[i], sine + i, cosine + i);
  }
}

// ---- Rotation and storing ---------------------------------------------------------------------------------------

inline void rotate(const float* x, const float* cosine, const float* sine, int64_t half, float* y) {
  for (int64_t i = 0; i < half; i += 16) {
    const int64_t n = half - i;
    const F32x16 a = load_up_to(x + i, n), b = load_up_to(x + half + i, n);
    const F32x16 c = load_up_to(cosine + i, n), s = load_up_to(sine + i, n);
    store_up_to(y + i, fma(a, c, negate(b * s)), n);
    store_up_to(y + half + i, fma(b, c, a * s), n);
  }
}

inline float magnitude(float x) { return __builtin_fabsf(x); }

// One head's values to a cache of 16-bit or 32-bit floats, `stride` elements apart.
inline bool store_f16(const float* x, int64_t n, uint16_t* out, int64_t stride) {
  bool fits = true;
  for (int64_t e = 0; e < n; ++e) {
    fits &= !(magnitude(x[e]) > 65504.0f && magnitude(x[e]) < kInfinity);
    out[e * stride] = f32_to_f16(x[e]);
  }
  return fits;
}
inline void store_bf16(const float* x, int64_t n, uint16_t* out, int64_t stride) {
  for (int64_t e = 0; e < n; ++e) {
    out[e * stride] = f32_to_bf16(x[e]);
  }
}
inline void store_f32(const float* x, int64_t n, float* out, int64_t stride) {
  for (int64_t e = 0; e < n; ++e) {
    out[e * stride] = x[e];
  }
}

inline void store_int8(const float* x, int64_t n, int8_t* out, int64_t stride, float* scales, int64_t scale_stride) {
  for (int64_t first = 0; first < n; first += kScaleBlock) {
    const int64_t count = n - first < kScaleBlock ? n - first : kScaleBlock;
    float largest = 0.0f;
    bool finite = true;
    for (int64_t i = 0; i < count; ++i) {
      const float a = magnitude(x[first + i]);
      finite &= a < kInfinity;
      largest = a > largest ? a : largest;
    }
    const bool usable = finite && largest >= 0x1p-100f;
    const float inverse = usable ? 127.0f / largest : 0.0f;
    for (int64_t i = 0; i < count; i += 16) {
      int32_t q[16];
      const F32x16 v = load_up_to(x + first + i, count - i);
      store_i32(q, round_i32(v * broadcast(inverse)));
      for (int64_t j = 0; j < 16 && i + j < count; ++j) {
        out[(first + i + j) * stride] = static_cast<int8_t>(q[j]);
      }
    }
    const float scale = usable ? largest / 127.0f : finite ? 0.0f : __builtin_nanf("");
    scales[first / kScaleBlock * scale_stride] = scale;
  }
}

// One head's key or value. `first` is its first element's place in the array, `first_scale` its first scale's.
inline bool store_head(const KVLayer& kv, const float* x, void* array, int64_t first, int64_t stride, float* scales,
                       int64_t first_scale) {
  switch (kv.type) {
    case KVType::F16:
      return store_f16(x, kv.head_dim, static_cast<uint16_t*>(array) + first, stride);
    case KVType::BF16:
      store_bf16(x, kv.head_dim, static_cast<uint16_t*>(array) + first, stride);
      return true;
    case KVType::F32:
      store_f32(x, kv.head_dim, static_cast<float*>(array) + first, stride);
      return true;
    case KVType::Int8:
      store_int8(x, kv.head_dim, static_cast<int8_t*>(array) + first, stride, scales + first_scale, stride);
      return true;
  }
  return false;
}

inline bool norm_rope_store(const HeadShape& shape, const float* qkv, const float* cosine, const float* sine, float* q,
                            const KVLayer& kv, int64_t slot) {
  const int64_t dim = shape.head_dim;
  float head[kMaxHeadDim];
  for (int64_t h = 0; h < shape.heads; ++h) {
    const float* x = qkv + h * dim;
    float* y = q + h * dim;
    if (shape.query_gain) {
      rms_norm(x, shape.query_gain, dim, shape.eps, head);
      x = head;
    }
    rotate(x, cosine, sine, dim / 2, y);
    for (int64_t e = 0; e < dim; e += 16) {
      store_up_to(y + e, load_up_to(y + e, dim - e) * broadcast(shape.query_scale), dim - e);
    }
  }
  const float* keys = qkv + shape.heads * dim;
  const float* values = keys + shape.kv_heads * dim;
  const int64_t page = slot / kPage, place = slot % kPage;
  bool fits = true;
  for (int64_t g = 0; g < shape.kv_heads; ++g) {
    const int64_t index = page * kv.kv_heads + g;
    const float* x = keys + g * dim;
    float rotated[kMaxHeadDim];
    if (shape.key_gain) {
      rms_norm(x, shape.key_gain, dim, shape.eps, head);
      x = head;
    }
    rotate(x, cosine, sine, dim / 2, rotated);
    fits &= store_head(kv, rotated, kv.keys, index * dim * kPage + place, kPage, kv.key_scales,
                       index * kv.scale_blocks() * kPage + place);
    fits &= store_head(kv, values + g * dim, kv.values, (index * kPage + place) * dim, 1, kv.value_scales,
                       (index * kPage + place) * kv.scale_blocks());
  }
  return fits;
}

// ---- Over the vocabulary ----------------------------------------------------------------------------------------

inline float log_sum_exp(const float* x, int64_t n) {
  constexpr int64_t kChunk = 1024;
  float m = 0.0f, l = 0.0f;
  for (int64_t first = 0; first < n; first += kChunk) {
    const int64_t count = n - first < kChunk ? n - first : kChunk;
    F32x16 largest = broadcast(-kInfinity);
    for (int64_t k = 0; k < count; k += 16) {
      const F32x16 v = load_up_to(x + first + k, count - k);
      largest = max(largest, select(lanes(0, count - k < 16 ? static_cast<int>(count - k) : 16), v, largest));
    }
    const float chunk_m = tree_max(largest);
    F32x16 s = broadcast(0.0f);
    for (int64_t k = 0; k < count; k += 16) {
      const F32x16 p = exp(load_up_to(x + first + k, count - k) - broadcast(chunk_m));
      s = s + select(lanes(0, count - k < 16 ? static_cast<int>(count - k) : 16), p, broadcast(0.0f));
    }
    const float chunk_l = tree_sum(s);
    if (first == 0) {
      m = chunk_m;
      l = chunk_l;
    } else {
      const float merged = m > chunk_m ? m : chunk_m;
      l = __builtin_fmaf(l, exp(m - merged), chunk_l * exp(chunk_m - merged));
      m = merged;
    }
  }
  return m + log(l);
}

// Sixteen values: those of x, and then the first again.
inline const float* filled_up(const float* x, int64_t n, float (&whole)[kLanes]) {
  for (int64_t i = 0; i < kLanes; ++i) {
    whole[i] = x[i < n ? i : 0];
  }
  return whole;
}

inline void peaks(const float* x, int64_t stride, int64_t rows, int64_t n, float* peak, int64_t peak_stride) {
  for (int64_t row = 0; row < rows; ++row, x += stride, peak += peak_stride) {
    float whole[kLanes];
    const F32x16 v = n == kLanes ? load(x) : load(filled_up(x, n, whole));
    *peak = tree_max(v) + tree_sum(v * broadcast(0.0f));  // NaN times anything, and infinity times 0
  }
}

// A binary heap of candidates whose worst one is at the root.
struct Candidates {
  float* values;
  int32_t* ids;
  int64_t size;

  bool worse(int64_t a, int64_t b) const {
    return values[a] < values[b] || (values[a] == values[b] && ids[a] > ids[b]);
  }
  void swap(int64_t a, int64_t b) {
    const float value = values[a];
    const int32_t id = ids[a];
    values[a] = values[b];
    ids[a] = ids[b];
    values[b] = value;
    ids[b] = id;
  }
  void sink(int64_t at) {
    for (;;) {
      int64_t worst = at;
      for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < size; ++child) {
        worst = worse(child, worst) ? child : worst;
      }
      if (worst == at) {
        return;
      }
      swap(at, worst);
      at = worst;
    }
  }
};

inline float ranked(float x) { return x == x ? x : -kInfinity; }

inline void top_k(const float* x, int64_t n, int64_t k, int32_t* ids, float* values) {
  Candidates best{values, ids, k};
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = static_cast<int32_t>(i);
    values[i] = ranked(x[i]);
  }
  for (int64_t i = k / 2; i-- > 0;) {
    best.sink(i);
  }
  // Ids ascend, so an equal value never displaces one that is there.
  for (int64_t first = k; first < n; first += 16) {
    if (!any(less(broadcast(values[0]), load_up_to(x + first, n - first)))) {
      continue;
    }
    for (int64_t i = first; i < n && i < first + 16; ++i) {
      if (x[i] > values[0]) {
        values[0] = x[i];
        ids[0] = static_cast<int32_t>(i);
        best.sink(0);
      }
    }
  }
  while (best.size > 1) {
    best.size -= 1;
    best.swap(0, best.size);
    best.sink(0);
  }
  for (int64_t i = 0; i < k; ++i) {
    values[i] = x[ids[i]];
  }
}

inline RowKernels row_kernels() {
  return {rms_norm,        add_norm, add,     gated_gelu,  softcap_row, angles,
          norm_rope_store, peaks,    exp_row, log_sum_exp, top_k};
}

}  // namespace cabochon::CABOCHON_ISA
