#include "program/attention_runner.h"

#include <algorithm>
#include <cstring>

namespace cabochon {
namespace {

constexpr int64_t kWorthAThread = 16384;  // floats merged in the time a thread takes to answer

// One segment's result for some queries, whole cache lines of it.
int64_t floats_of_partial(int64_t queries, int64_t dim) { return (queries * (dim + 2) + 15) / 16 * 16; }

AttentionPartial partial_at(float* memory, int64_t queries, int64_t dim) {
  float* m = memory + queries * dim;
  return {m, m + queries, memory};
}

// Merges a segment's result into what earlier ones gave; l is 0 where there was nothing yet.
void merge(const AttentionKernels& kernels, int64_t dim, float* m, float* l, float* o, const AttentionPartial& part,
           int64_t query) {
  if (part.l[query] == 0.0f) {
    return;
  }
  const float* added = part.o + query * dim;
  if (*l == 0.0f) {
    *m = part.m[query];
    *l = part.l[query];
    std::memcpy(o, added, static_cast<size_t>(dim) * sizeof(float));
  } else {
    kernels.merge(dim, m, l, o, part.m[query], part.l[query], added);
  }
}

}  // namespace

AttentionRunner::AttentionRunner(Machine& machine, int64_t max_head_dim, int64_t partial_floats)
    : machine_(machine), partial_floats_(std::max(partial_floats, floats_of_partial(kTileQueries, max_head_dim))) {
  // Per thread: the kernel's own memory, one segment's result, and what has been merged.
  result_bytes_ = static_cast<size_t>(floats_of_partial(kTileQueries, max_head_dim)) * sizeof(float);
  kernel_bytes_ = whole_lines(static_cast<size_t>(machine.kernels.attention.scratch_bytes(max_head_dim)));
  scratch_stride_ = kernel_bytes_ + 2 * result_bytes_;
  scratch_ = Memory(scratch_stride_ * static_cast<size_t>(machine.pool.threads()));
  partials_ = Memory(static_cast<size_t>(partial_floats_) * sizeof(float));
}

void AttentionRunner::cut(const KVLayer& kv, int64_t heads, float softcap, const AttendingRows& rows,
                          const PageTable& table, const float* q, float* out) {
  tiles_.clear();
  const int64_t group = heads / kv.kv_heads, dim = kv.head_dim;
  const int64_t tile_heads = std::min(group, kTileQueries);
  const int64_t most_rows = std::max<int64_t>(1, kTileQueries / tile_heads);
  for (int64_t begin = 0, end; begin < rows.count; begin = end) {
    const int32_t sequence = rows.sequence_of[begin];
    for (end = begin + 1; end < rows.count && end - begin < most_rows && rows.sequence_of[end] == sequence;) {
      ++end;
    }
    const auto [low, high] = std::pair{*std::min_element(rows.first_key + begin, rows.first_key + end),
                                       *std::max_element(rows.last_key + begin, rows.last_key + end)};
    for (int64_t g = 0; g < kv.kv_heads; ++g) {
      for (int64_t h = 0; h < group; h += tile_heads) {
        const int64_t offset = begin * heads * dim + (g * group + h) * dim;
        tiles_.push_back({{&kv, g, table.pages + sequence * table.width, end - begin, std::min(tile_heads, group - h),
                           q + offset, heads * dim, rows.first_key + begin, rows.last_key + begin, softcap},
                          out + offset,
                          low / kSegment,
                          high / kSegment + 1,
                          -1});
      }
    }
  }
}

// Marks the tiles that are too large a share of the work for one thread.
void AttentionRunner::split() {
  tile_of_query_.clear();
  if (machine_.pool.threads() == 1) {
    return;
  }
  auto cost = [](const Tile& t) { return t.queries.rows * t.queries.heads * (t.last_segment - t.first_segment); };
  int64_t total = 0;
  for (const Tile& t : tiles_) {
    total += cost(t);
  }
  for (size_t i = 0; i < tiles_.size(); ++i) {
    Tile& t = tiles_[i];
    if (t.last_segment - t.first_segment > 1 && cost(t) * 4 * machine_.pool.threads() > total) {
      t.split_query = static_cast<int64_t>(tile_of_query_.size());
      tile_of_query_.insert(tile_of_query_.end(), static_cast<size_t>(t.queries.rows * t.queries.heads),
                            static_cast<int64_t>(i));
    }
  }
  split_m_.assign(tile_of_query_.size(), 0.0f);
  split_l_.assign(tile_of_query_.size(), 0.0f);
}

void AttentionRunner::run(const KVLayer& kv, int64_t heads, float softcap, const AttendingRows& rows,
                          const PageTable& table, const float* q, float* out) {
  cut(kv, heads, softcap, rows, table, q, out);
  split();
  units_.clear();
  for (size_t i = 0; i < tiles_.size(); ++i) {
    if (tiles_[i].split_query < 0) {
      units_.push_back({static_cast<int64_t>(i), -1, 0});
    }
  }
  const int64_t dim = kv.head_dim, split_queries = static_cast<int64_t>(tile_of_query_.size());
  int64_t used = 0;
  auto run_units = [&] {
    machine_.pool.parallel(static_cast<int64_t>(units_.size()), 1, [&](int64_t first, int64_t, int thread) {
      const Unit& unit = units_[static_cast<size_t>(first)];
      if (unit.segment < 0) {
        attend_whole(tiles_[static_cast<size_t>(unit.tile)], thread);
      } else {
        attend_part(unit, thread);
      }
    });
    const int64_t floats_of_query = dim * static_cast<int64_t>(units_.size());
    const int64_t chunk = 1 + kWorthAThread / (1 + floats_of_query);
    machine_.pool.parallel(split_queries, chunk, [&](int64_t first, int64_t last, int) { merge_parts(first, last); });
    units_.clear();
    used = 0;
  };
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const Tile& tile = tiles_[i];
    if (tile.split_query < 0) {
      continue;
    }
    const int64_t floats = floats_of_partial(tile.queries.rows * tile.queries.heads, dim);
    for (int64_t segment = tile.first_segment; segment < tile.last_segment; ++segment) {
      if (used + floats > partial_floats_) {
        run_units();
      }
      units_.push_back({static_cast<int64_t>(i), segment, used});
      used += floats;
    }
  }
  run_units();
  for (int64_t query = 0; query < split_queries; ++query) {
    const Tile& tile = tiles_[static_cast<size_t>(tile_of_query_[static_cast<size_t>(query)])];
    const int64_t i = query - tile.split_query;
    float* o = tile.out + i / tile.queries.heads * tile.queries.row_stride + i % tile.queries.heads * dim;
    machine_.kernels.attention.finish(dim, split_l_[static_cast<size_t>(query)], o, o);
  }
}

void AttentionRunner::attend_whole(const Tile& tile, int thread) {
  const AttentionKernels& kernels = machine_.kernels.attention;
  const int64_t dim = tile.queries.kv->head_dim, queries = tile.queries.rows * tile.queries.heads;
  uint8_t* scratch = scratch_.data() + static_cast<size_t>(thread) * scratch_stride_;
  uint8_t* results = scratch + kernel_bytes_;
  const AttentionPartial sum = partial_at(reinterpret_cast<float*>(results), queries, dim);
  const AttentionPartial part = partial_at(reinterpret_cast<float*>(results + result_bytes_), queries, dim);
  for (int64_t segment = tile.first_segment; segment < tile.last_segment; ++segment) {
    if (segment == tile.first_segment) {
      kernels.segment(tile.queries, segment, scratch, sum);
      continue;
    }
    kernels.segment(tile.queries, segment, scratch, part);
    for (int64_t i = 0; i < queries; ++i) {
      merge(kernels, dim, &sum.m[i], &sum.l[i], sum.o + i * dim, part, i);
    }
  }
  for (int64_t i = 0; i < queries; ++i) {
    float* out = tile.out + i / tile.queries.heads * tile.queries.row_stride + i % tile.queries.heads * dim;
    kernels.finish(dim, sum.l[i], sum.o + i * dim, out);
  }
}

void AttentionRunner::attend_part(const Unit& unit, int thread) {
  const Tile& tile = tiles_[static_cast<size_t>(unit.tile)];
  const int64_t queries = tile.queries.rows * tile.queries.heads;
  machine_.kernels.attention.segment(
      tile.queries, unit.segment, scratch_.data() + static_cast<size_t>(thread) * scratch_stride_,
      partial_at(partials_.as<float>() + unit.partial, queries, tile.queries.kv->head_dim));
}

// Merges the round's segments into split queries first <= query < last.
void AttentionRunner::merge_parts(int64_t first_query, int64_t last_query) {
  for (int64_t query = first_query; query < last_query; ++query) {
    const auto at = static_cast<size_t>(query);
    const Tile& tile = tiles_[static_cast<size_t>(tile_of_query_[at])];
    const int64_t dim = tile.queries.kv->head_dim, i = query - tile.split_query;
    float* o = tile.out + i / tile.queries.heads * tile.queries.row_stride + i % tile.queries.heads * dim;
    for (const Unit& unit : units_) {
      if (unit.tile == tile_of_query_[at] && unit.segment >= 0) {
        const AttentionPartial part =
            partial_at(partials_.as<float>() + unit.partial, tile.queries.rows * tile.queries.heads, dim);
        merge(machine_.kernels.attention, dim, &split_m_[at], &split_l_[at], o, part, i);
      }
    }
  }
}

}  // namespace cabochon
