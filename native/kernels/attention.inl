// Attention over sixteen lanes. Included after one of simd/*.h, with CABOCHON_ACCUMULATORS defined.
#pragma once

#include "kernels/attention.h"
#include "kernels/attention_product.inl"
#include "kernels/math.inl"

namespace cabochon::CABOCHON_ISA {

inline constexpr int64_t kPagesOfSegment = kSegment / kPage;

inline int64_t padded(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// ---- Pages ------------------------------------------------------------------------------------------------------

// One vector of stored values (Int8: unscaled) from element `at`, of which n <= 16 exist.
inline F32x16 load_stored(KVType type, const void* array, int64_t at, int64_t n) {
  if (n >= 16) {
    switch (type) {
      case KVType::F16:
        return load_f16(static_cast<const uint16_t*>(array) + at);
      case KVType::BF16:
        return load_bf16(static_cast<const uint16_t*>(array) + at);
      case KVType::F32:
        return load(static_cast<const float*>(array) + at);
      case KVType::Int8:
        return load_i8(static_cast<const int8_t*>(array) + at);
    }
  }
  float v[16] = {};
  for (int64_t i = 0; i < n; ++i) {
    switch (type) {
      case KVType::F16:
        v[i] = f16_to_f32(static_cast<const uint16_t*>(array)[at + i]);
        break;
      case KVType::BF16:
        v[i] = bf16_to_f32(static_cast<const uint16_t*>(array)[at + i]);
        break;
      case KVType::F32:
        v[i] = static_cast<const float*>(array)[at + i];
        break;
      case KVType::Int8:
        v[i] = static_cast<float>(static_cast<const int8_t*>(array)[at + i]);
        break;
    }
  }
  return load(v);
}

// The keys of one page and head as float32 [head_dim][kPage].
inline void widen_keys(const KVLayer& kv, int64_t index, float* out) {
  const float* scales = kv.key_scales + (kv.type == KVType::Int8 ? index * kv.scale_blocks() * kPage : 0);
  for (int64_t e = 0; e < kv.head_dim; ++e) {
    for (int64_t k = 0; k < kPage; k += 16) {
      F32x16 v = load_stored(kv.type, kv.keys, (index * kv.head_dim + e) * kPage + k, 16);
      if (kv.type == KVType::Int8) {
        v = v * load(scales + e / kScaleBlock * kPage + k);
      }
      store(out + e * kPage + k, v);
    }
  }
}

// The values of one page and head as float32 [kPage][padded(head_dim)].
inline void widen_values(const KVLayer& kv, int64_t index, float* out) {
  const int64_t width = padded(kv.head_dim), blocks = kv.scale_blocks();
  for (int64_t k = 0; k < kPage; ++k) {
    const int64_t row = index * kPage + k;
    for (int64_t e = 0; e < width; e += 16) {
      F32x16 v = load_stored(kv.type, kv.values, row * kv.head_dim + e, kv.head_dim - e);
      if (kv.type == KVType::Int8) {
        v = v * broadcast(kv.value_scales[row * blocks + e / kScaleBlock]);
      }
      store(out + k * width + e, v);
    }
  }
}

// ---- One segment ------------------------------------------------------------------------------------------------

// The queries of a tile and what the segment gives them, in scratch memory.
struct SegmentWork {
  int64_t queries;
  const float* q[kTileQueries];
  float* weights[kTileQueries];  // [kSegment]: scores, then their exponentials
  float* sums[kTileQueries];     // [padded(head_dim)]
  int64_t first[kTileQueries];   // keys in range, counted from the segment's first: first <= key < last
  int64_t last[kTileQueries];
  float* page;  // one widened page
};

inline bool needs(const SegmentWork& work, int64_t query, int64_t from, int64_t to) {
  return work.first[query] < to && work.last[query] > from;
}

// One page widened is read several times; few queries read the stored values as they are.
inline bool widens(const KVLayer& kv, int64_t queries) {
  return kv.type == KVType::Int8 || kv.head_dim % 16 != 0 ||
         (kv.type != KVType::F32 && queries > 2 * block_of(kTileQueries));
}

template <class Rows>
inline void score_page(const SegmentWork& work, const Rows& keys, int64_t head_dim, int64_t from) {
  for (int64_t i = 0, n; i < work.queries; i += n) {
    n = block_of(work.queries - i);
    bool needed = false;
    float* out[12];
    for (int64_t j = 0; j < n; ++j) {
      needed |= needs(work, i + j, from, from + kPage);
      out[j] = work.weights[i + j] + from;
    }
    if (needed) {
      multiply_some<false>(n, work.q + i, keys, 0, head_dim, kPage, out);
    }
  }
}

template <class Rows>
inline void mix_page(const SegmentWork& work, const Rows& values, int64_t width, int64_t from) {
  for (int64_t i = 0, n; i < work.queries; i += n) {
    n = block_of(work.queries - i);
    // Keys of the page that all n queries see; what only some see is theirs alone, before or after.
    int64_t begin = 0, end = kPage;
    const float* a[12];
    for (int64_t j = 0; j < n; ++j) {
      begin = most(begin, work.first[i + j] - from);
      end = least(end, work.last[i + j] - from);
      a[j] = work.weights[i + j] + from;
    }
    const bool shared = begin < end;
    for (int64_t j = 0; j < n; ++j) {
      const int64_t own_first = most(0, work.first[i + j] - from);
      const int64_t own_last = least(shared ? begin : kPage, work.last[i + j] - from);
      if (own_first < own_last) {
        multiply_some<true>(1, a + j, values, own_first, own_last, width, work.sums + i + j);
      }
    }
    if (!shared) {
      continue;
    }
    multiply_some<true>(n, a, values, begin, end, width, work.sums + i);
    for (int64_t j = 0; j < n; ++j) {
      const int64_t own_last = least(kPage, work.last[i + j] - from);
      if (end < own_last) {
        multiply_some<true>(1, a + j, values, end, own_last, width, work.sums + i + j);
      }
    }
  }
}

// Scores of one query to weights; gives m and l.
inline void exponentials(float* s, int64_t first, int64_t last, float cap, float* m, float* l) {
  F32x16 largest = broadcast(-kInfinity);
  for (int64_t k = first / 16 * 16; k < last; k += 16) {
    F32x16 v = load(s + k);
    if (cap != 0.0f) {
      v = softcap(v, broadcast(cap));
      store(s + k, v);
    }
    const Mask16 in_range = lanes(static_cast<int>(most(0, first - k)), static_cast<int>(least(16, last - k)));
    largest = max(largest, select(in_range, v, broadcast(-kInfinity)));
  }
  *m = tree_max(largest);
  F32x16 sum = broadcast(0.0f);
  for (int64_t k = first / 16 * 16; k < last; k += 16) {
    const Mask16 in_range = lanes(static_cast<int>(most(0, first - k)), static_cast<int>(least(16, last - k)));
    const F32x16 p = select(in_range, exp(load(s + k) - broadcast(*m)), broadcast(0.0f));
    store(s + k, p);
    sum = sum + p;
  }
  *l = tree_sum(sum);
}

inline int64_t attention_scratch_bytes(int64_t head_dim) {
  const int64_t floats = kTileQueries * kSegment + kTileQueries * padded(head_dim) + kPage * padded(head_dim);
  return floats * static_cast<int64_t>(sizeof(float));
}

inline SegmentWork lay_out(const AttentionTile& tile, int64_t segment, uint8_t* scratch) {
  SegmentWork work;
  const int64_t dim = tile.kv->head_dim, begin = segment * kSegment;
  float* memory = reinterpret_cast<float*>(scratch);
  work.queries = tile.rows * tile.heads;
  for (int64_t row = 0; row < tile.rows; ++row) {
    for (int64_t head = 0; head < tile.heads; ++head) {
      const int64_t i = row * tile.heads + head;
      work.q[i] = tile.q + row * tile.row_stride + head * dim;
      work.weights[i] = memory + i * kSegment;
      work.sums[i] = memory + kTileQueries * kSegment + i * padded(dim);
      work.first[i] = most(0, tile.first_key[row] - begin);
      work.last[i] = least(kSegment, tile.last_key[row] + int64_t{1} - begin);
    }
  }
  work.page = memory + kTileQueries * kSegment + kTileQueries * padded(dim);
  return work;
}

// Pages of the segment that some query looks at, ascending.
struct NeededPages {
  int64_t count = 0;
  int64_t from[kPagesOfSegment];   // first key, counted from the segment's first
  int64_t index[kPagesOfSegment];  // page and head, as one number
};

inline NeededPages needed_pages(const AttentionTile& tile, int64_t segment, const SegmentWork& work) {
  NeededPages pages;
  for (int64_t j = 0; j < kPagesOfSegment; ++j) {
    bool needed = false;
    for (int64_t i = 0; i < work.queries; ++i) {
      needed |= needs(work, i, j * kPage, (j + 1) * kPage);
    }
    if (needed) {
      pages.from[pages.count] = j * kPage;
      pages.index[pages.count] = tile.pages[segment * kPagesOfSegment + j] * tile.kv->kv_heads + tile.kv_head;
      pages.count += 1;
    }
  }
  return pages;
}

// Calls f(rows of vectors) for one stored page [rows][width] of head_dim * kPage elements from element `at`.
template <class F>
inline void with_rows(const KVLayer& kv, const void* array, int64_t at, int64_t width, const Ahead& ahead, F f) {
  switch (kv.type) {
    case KVType::F16:
      return f(F16Rows{static_cast<const uint16_t*>(array) + at, width, ahead});
    case KVType::BF16:
      return f(BF16Rows{static_cast<const uint16_t*>(array) + at, width, ahead});
    case KVType::F32:
      return f(F32Rows{static_cast<const float*>(array) + at, width, ahead});
    case KVType::Int8:
      return;  // always widened
  }
}

inline void attend_segment(const AttentionTile& tile, int64_t segment, uint8_t* scratch, const AttentionPartial& out) {
  const KVLayer& kv = *tile.kv;
  const int64_t dim = kv.head_dim, width = padded(dim), bytes = kv_type_bytes(kv.type);
  const SegmentWork work = lay_out(tile, segment, scratch);
  const NeededPages pages = needed_pages(tile, segment, work);
  const bool wide = widens(kv, work.queries);
  auto place = [&](const void* array, int64_t j) {
    return static_cast<const uint8_t*>(array) + pages.index[j] * dim * kPage * bytes;
  };

  for (int64_t j = 0; j < pages.count; ++j) {
    const uint8_t* next = j + 1 < pages.count ? place(kv.keys, j + 1) : place(kv.values, 0);
    const Ahead ahead{next, kPage * bytes, bytes};
    auto score = [&](const auto& rows) { score_page(work, rows, dim, pages.from[j]); };
    if (wide) {
      widen_keys(kv, pages.index[j], work.page);
      score(F32Rows{work.page, kPage, ahead});
    } else {
      with_rows(kv, kv.keys, pages.index[j] * dim * kPage, kPage, ahead, score);
    }
  }

  for (int64_t i = 0; i < work.queries; ++i) {
    if (work.first[i] < work.last[i]) {
      exponentials(work.weights[i], work.first[i], work.last[i], tile.softcap, &out.m[i], &out.l[i]);
    } else {
      out.m[i] = -kInfinity;
      out.l[i] = 0.0f;
    }
    for (int64_t e = 0; e < width; e += 16) {
      store(work.sums[i] + e, broadcast(0.0f));
    }
  }

  for (int64_t j = 0; j < pages.count; ++j) {
    const Ahead ahead{place(kv.values, j + 1 < pages.count ? j + 1 : j), dim * bytes, bytes};
    auto mix = [&](const auto& rows) { mix_page(work, rows, width, pages.from[j]); };
    if (wide) {
      widen_values(kv, pages.index[j], work.page);
      mix(F32Rows{work.page, width, ahead});
    } else {
      with_rows(kv, kv.values, pages.index[j] * dim * kPage, dim, ahead, mix);
    }
  }

  for (int64_t i = 0; i < work.queries; ++i) {
    for (int64_t e = 0; e < dim; e += 16) {
      store_up_to(out.o + i * dim + e, load(work.sums[i] + e), dim - e);
    }
  }
}

// ---- Putting segments together ----------------------------------------------------------------------------------

inline void merge_segment(int64_t head_dim, float* m, float* l, float* o, float segment_m, float segment_l,
                          const float* segment_o) {
  const float merged = *m > segment_m ? *m : segment_m;
  const float a = exp(*m - merged), b = exp(segment_m - merged);
  *m = merged;
  *l = __builtin_fmaf(*l, a, segment_l * b);
  for (int64_t e = 0; e < head_dim; e += 16) {
    const int64_t n = head_dim - e;
    const F32x16 added = load_up_to(segment_o + e, n) * broadcast(b);
    store_up_to(o + e, fma(load_up_to(o + e, n), broadcast(a), added), n);
  }
}

inline void finish_attention(int64_t head_dim, float l, const float* o, float* out) {
  for (int64_t e = 0; e < head_dim; e += 16) {
    store_up_to(out + e, load_up_to(o + e, head_dim - e) / broadcast(l), head_dim - e);
  }
}

inline AttentionKernels attention_kernels() {
  return {attend_segment, merge_segment, finish_attention, attention_scratch_bytes};
}

}  // namespace cabochon::CABOCHON_ISA
