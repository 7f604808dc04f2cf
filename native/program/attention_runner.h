// Attention of all rows of a step in one layer, spread over the threads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "memory/memory.h"
#include "program/machine.h"
#include "program/step.h"

namespace cabochon {

// The rows that attend: which sequence each belongs to, and the keys it sees, inclusive. Rows of a sequence are
// neighbours.
struct AttendingRows {
  int64_t count;
  const int32_t* sequence_of;
  const int32_t* first_key;
  const int32_t* last_key;
};

// Few rows over many keys (decoding) are cut into segments of keys, many rows (prefill) into tiles of queries; segments
// are always merged in ascending order, so the cutting changes no bit.
class AttentionRunner {
 public:
  // `partial_floats` bounds the memory for results of segments that wait to be merged.
  AttentionRunner(Machine& machine, int64_t max_head_dim, int64_t partial_floats = int64_t{1} << 20);

  // out [rows, heads * head_dim] of q, alike; softcap 0 is none.
  void run(const KVLayer& kv, int64_t heads, float softcap, const AttendingRows& rows, const PageTable& table,
           const float* q, float* out);

 private:
  // Queries that share their loads, and the segments their keys lie in: first <= segment < last.
  struct Tile {
    AttentionTile queries;
    float* out;
    int64_t first_segment;
    int64_t last_segment;
    int64_t split_query;  // place of its queries among those of all split tiles, -1 if one thread does the whole tile
  };
  // A tile, or one segment of a split one whose result waits at `partial`.
  struct Unit {
    int64_t tile;
    int64_t segment;
    int64_t partial;
  };

  void cut(const KVLayer& kv, int64_t heads, float softcap, const AttendingRows& rows, const PageTable& table,
           const float* q, float* out);
  void split();
  void attend_whole(const Tile& tile, int thread);
  void attend_part(const Unit& unit, int thread);
  void merge_parts(int64_t first_query, int64_t last_query);

  Machine& machine_;
  int64_t partial_floats_;
  size_t kernel_bytes_, result_bytes_, scratch_stride_;  // of one thread's memory
  Memory scratch_, partials_;
  std::vector<Tile> tiles_;
  std::vector<Unit> units_;               // of the current round; those of a split tile are neighbours, ascending
  std::vector<int64_t> tile_of_query_;    // of the queries of split tiles
  std::vector<float> split_m_, split_l_;  // of the same: what has been merged so far; o is in the output itself
};

}  // namespace cabochon
