// Attention of some queries over the stored keys of one sequence and one key/value head (docs/arithmetic.md section 6).
#pragma once

#include <cstdint>

#include "kernels/kv.h"

namespace cabochon {

// Queries that share a page table and a key/value head: a few neighbouring rows times the heads of the group.
struct AttentionTile {
  const KVLayer* kv;
  int64_t kv_head;
  const int32_t* pages;  // page of keys kPage*i ... kPage*i + kPage-1; looked at only where a range needs it
  int64_t rows;
  int64_t heads;   // query heads of one row; rows * heads <= kTileQueries
  const float* q;  // query of (row, head): q + row * row_stride + head * head_dim
  int64_t row_stride;
  const int32_t* first_key;  // [rows], inclusive
  const int32_t* last_key;   // [rows], inclusive, >= first_key
  float softcap;             // 0: none
};

inline constexpr int64_t kTileQueries = 48;

// What one segment gives the queries of a tile, [rows * heads] each; l is 0 where no key of the segment is in range.
struct AttentionPartial {
  float* m;
  float* l;
  float* o;  // [rows * heads, head_dim]
};

struct AttentionKernels {
  // Keys [segment * kSegment, (segment + 1) * kSegment). `scratch` has scratch_bytes, 64-byte aligned; not kept.
  void (*segment)(const AttentionTile& tile, int64_t segment, uint8_t* scratch, const AttentionPartial& out);

  // One query: merges a later segment into what the earlier ones gave.
  void (*merge)(int64_t head_dim, float* m, float* l, float* o, float segment_m, float segment_l,
                const float* segment_o);

  // One query: o / l.
  void (*finish)(int64_t head_dim, float l, const float* o, float* out);

  int64_t (*scratch_bytes)(int64_t head_dim);
};

}  // namespace cabochon
