// Where one layer's keys and values lie, as the kernels see it.
#pragma once

#include <cstdint>

namespace cabochon {

inline constexpr int64_t kPage = 32;        // keys of one page
inline constexpr int64_t kSegment = 256;    // keys of one segment of attention
inline constexpr int64_t kScaleBlock = 32;  // values along head_dim that share one int8 scale
inline constexpr int64_t kMaxHeadDim = 512;

enum class KVType : int32_t { F16, BF16, F32, Int8 };

inline int64_t kv_type_bytes(KVType t) { return t == KVType::F32 ? 4 : t == KVType::Int8 ? 1 : 2; }

// Keys [pages, kv_heads, head_dim, kPage], values [pages, kv_heads, kPage, head_dim]. Scales (Int8 only): one for each
// kScaleBlock along head_dim, laid out like the values they scale; the last block may be shorter.
struct KVLayer {
  KVType type;
  int64_t pages;
  int64_t kv_heads;
  int64_t head_dim;
  void* keys;
  void* values;
  float* key_scales;
  float* value_scales;

  int64_t scale_blocks() const { return (head_dim + kScaleBlock - 1) / kScaleBlock; }
  // Bytes of one position's keys and values, over all heads, scales included.
  int64_t position_bytes() const {
    const int64_t scales = type == KVType::Int8 ? 4 * scale_blocks() : 0;
    return 2 * kv_heads * (head_dim * kv_type_bytes(type) + scales);
  }
};

}  // namespace cabochon
