#include "bindings/kv.h"

#include <cstring>

namespace cabochon {
namespace {

nb::dlpack::dtype element(KVType type) {
  switch (type) {
    case KVType::F16:
      return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case KVType::BF16:
      return nb::dtype<uint16_t>();
    case KVType::F32:
      return nb::dtype<float>();
    case KVType::Int8:
      return nb::dtype<int8_t>();
  }
  throw nb::value_error("no such KV type");
}

template <typename Array>
bool has_shape(const Array& a, size_t n0, size_t n1, size_t n2, size_t n3) {
  return a.shape(0) == n0 && a.shape(1) == n1 && a.shape(2) == n2 && a.shape(3) == n3;
}

}  // namespace

KVType kv_type(const char* name) {
  const char* names[] = {"f16", "bf16", "f32", "int8"};
  const KVType types[] = {KVType::F16, KVType::BF16, KVType::F32, KVType::Int8};
  for (int i = 0; i < 4; ++i) {
    if (std::strcmp(name, names[i]) == 0) {
      return types[i];
    }
  }
  throw nb::value_error("the KV type is none of f16, bf16, f32, int8");
}

KVLayer kv_layer(KVType type, const AnyArray4& keys, const AnyArray4& values, const std::optional<Scales>& key_scales,
                 const std::optional<Scales>& value_scales) {
  const size_t pages = keys.shape(0), heads = keys.shape(1), dim = keys.shape(2), page = kPage;
  if (dim < 2 || dim % 2 != 0 || dim > static_cast<size_t>(kMaxHeadDim)) {
    throw nb::value_error("KV arrays: head_dim must be an even number from 2 to 512");
  }
  if (heads < 1 || !has_shape(keys, pages, heads, dim, page) || !has_shape(values, pages, heads, page, dim)) {
    throw nb::value_error("KV arrays: the shapes of keys and values do not fit each other");
  }
  if (pages > static_cast<size_t>(INT32_MAX / kPage)) {
    throw nb::value_error("KV arrays: more pages than slots can be numbered");
  }
  if (keys.dtype() != element(type) || values.dtype() != element(type)) {
    throw nb::value_error("KV arrays: keys or values have another element type than the KV type says");
  }
  const bool scaled = type == KVType::Int8;
  if (key_scales.has_value() != scaled || value_scales.has_value() != scaled) {
    throw nb::value_error("KV arrays: scales belong to int8 and to nothing else");
  }
  KVLayer kv{type,
             static_cast<int64_t>(pages),
             static_cast<int64_t>(heads),
             static_cast<int64_t>(dim),
             keys.data(),
             values.data(),
             nullptr,
             nullptr};
  if (scaled) {
    const auto blocks = static_cast<size_t>(kv.scale_blocks());
    if (!has_shape(*key_scales, pages, heads, blocks, page) || !has_shape(*value_scales, pages, heads, page, blocks)) {
      throw nb::value_error("KV arrays: the shapes of the scales do not fit the values");
    }
    kv.key_scales = key_scales->data();
    kv.value_scales = value_scales->data();
  }
  return kv;
}

}  // namespace cabochon
