// A layer's arrays of keys and values, taken from Python and checked.
#pragma once

#include <optional>

#include "bindings/bindings.h"
#include "kernels/kv.h"

namespace cabochon {

using AnyArray4 = nb::ndarray<nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Scales = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

// "f16", "bf16", "f32" or "int8"; otherwise ValueError.
KVType kv_type(const char* name);

// `keys` [pages, kv_heads, head_dim, 32] and `values` [pages, kv_heads, 32, head_dim], with scales for int8 only.
// ValueError if a shape or a type is not what the rest says. The arrays must outlive the result.
KVLayer kv_layer(KVType type, const AnyArray4& keys, const AnyArray4& values, const std::optional<Scales>& key_scales,
                 const std::optional<Scales>& value_scales);

}  // namespace cabochon
