// What a program is made of. Each instruction reads some values and writes one; docs/arithmetic.md says what each
// computes.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

namespace cabochon {

// Numbers of what the program holds, in the order it was added.
using Value = int32_t;   // an activation buffer
using Weight = int32_t;  // a packed matrix
using Gain = int32_t;    // a vector

struct Embed {
  Value out;
  Weight table;
  float scale;
};
struct RmsNorm {
  Value out, x;
  Gain gain;
  float eps;
};
struct AddNorm {
  Value out, h, x;
  Gain gain;
  float eps;
};
struct Add {
  Value out, a, b;
};
struct Linear {
  Value out, x;
  std::vector<Weight> weights;
};
struct NormRopeStore {
  Value out, qkv;
  int32_t layer;
  int32_t rope;
  int64_t heads;
  Gain query_gain, key_gain;  // -1: none
  float eps;
  float query_scale;
};
struct Attend {
  Value out, q;
  int32_t layer;
  int64_t heads;
  float softcap;  // 0: none
};
struct GatedGelu {
  Value out, x;
};
struct KeepRows {
  Value out, x;
};
struct Softcap {
  Value out, x;
  float cap;
};

using Instruction =
    std::variant<Embed, RmsNorm, AddNorm, Add, Linear, NormRopeStore, Attend, GatedGelu, KeepRows, Softcap>;

}  // namespace cabochon
