#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/functions.h"
#include "reference/rows.h"

namespace cabochon::reference {
namespace {

float key_element(const AttentionTile& tile, int64_t key, int64_t e) {
  const KVLayer& kv = *tile.kv;
  const int64_t head = tile.pages[key / kPage] * kv.kv_heads + tile.kv_head;
  return stored(kv, kv.keys, kv.key_scales, (head * kv.head_dim + e) * kPage + key % kPage,
                (head * kv.scale_blocks() + e / kScaleBlock) * kPage + key % kPage);
}

float value_element(const AttentionTile& tile, int64_t key, int64_t e) {
  const KVLayer& kv = *tile.kv;
  const int64_t row = (tile.pages[key / kPage] * kv.kv_heads + tile.kv_head) * kPage + key % kPage;
  return stored(kv, kv.values, kv.value_scales, row * kv.head_dim + e, row * kv.scale_blocks() + e / kScaleBlock);
}

void segment(const AttentionTile& tile, int64_t index, uint8_t*, const AttentionPartial& out) {
  const int64_t dim = tile.kv->head_dim;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t first = std::max<int64_t>(tile.first_key[row], index * kSegment);
    const int64_t last = std::min<int64_t>(tile.last_key[row], index * kSegment + kSegment - 1);
    for (int64_t head = 0; head < tile.heads; ++head) {
      const int64_t query = row * tile.heads + head;
      const float* q = tile.q + row * tile.row_stride + head * dim;
      float m = -std::numeric_limits<float>::infinity();
      std::vector<float> scores;
      for (int64_t key = first; key <= last; ++key) {
        float s = 0;
        for (int64_t e = 0; e < dim; ++e) {
          s = std::fma(q[e], key_element(tile, key, e), s);
        }
        scores.push_back(tile.softcap != 0 ? softcap(s, tile.softcap) : s);
        m = std::max(m, scores.back());
      }
      std::vector<float> p(kSegment);
      for (int64_t key = first; key <= last; ++key) {
        p[static_cast<size_t>(key - index * kSegment)] = exp(scores[static_cast<size_t>(key - first)] - m);
      }
      out.m[query] = m;
      out.l[query] = lane_sum(p.data(), kSegment);
      for (int64_t e = 0; e < dim; ++e) {
        float o = 0;
        for (int64_t key = first; key <= last; ++key) {
          o = std::fma(p[static_cast<size_t>(key - index * kSegment)], value_element(tile, key, e), o);
        }
        out.o[query * dim + e] = o;
      }
    }
  }
}

void merge(int64_t head_dim, float* m, float* l, float* o, float segment_m, float segment_l, const float* segment_o) {
  const float merged = std::max(*m, segment_m);
  const float a = exp(*m - merged), b = exp(segment_m - merged);
  *m = merged;
  *l = std::fma(*l, a, segment_l * b);
  for (int64_t e = 0; e < head_dim; ++e) {
    o[e] = std::fma(o[e], a, segment_o[e] * b);
  }
}

void finish(int64_t head_dim, float l, const float* o, float* out) {
  for (int64_t e = 0; e < head_dim; ++e) {
    out[e] = o[e] / l;
  }
}

}  // namespace

AttentionKernels attention_kernels() {
  return {segment, merge, finish, [](int64_t) -> int64_t { return 64; }};
}

}  // namespace cabochon::reference
