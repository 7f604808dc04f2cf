// `_native.check`: single kernels by instruction set, and the scalar reference beside them, for tests.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/kv.h"
#include "kernels/choose.h"
#include "numerics/float_mode.h"
#include "program/attention_runner.h"
#include "reference/attention.h"
#include "reference/rows.h"
#include "threads/pool.h"

namespace cabochon {
namespace {

using MutableFloats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableFloats3 = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

struct Judged {
  RowKernels rows;
  AttentionKernels attention;
};

Judged kernels(const std::string& isa) {
  if (isa == "reference") {
    return {reference::row_kernels(), reference::attention_kernels()};
  }
  for (const Kernels* k : available_kernels()) {
    if (isa == k->name) {
      return {k->rows, k->attention};
    }
  }
  throw nb::value_error("no such instruction set");
}

template <typename... Arrays>
int64_t same_length(const MutableFloats& out, const Arrays&... others) {
  if (((others.shape(0) != out.shape(0)) || ...)) {
    throw nb::value_error("the arrays differ in length");
  }
  return static_cast<int64_t>(out.shape(0));
}

void rms_norm(const std::string& isa, const Floats& x, const Floats& gain, float eps, MutableFloats out) {
  const int64_t n = same_length(out, x, gain);
  const FloatMode mode;
  kernels(isa).rows.rms_norm(x.data(), gain.data(), n, eps, out.data());
}

void add_norm(const std::string& isa, const Floats& h, const Floats& x, const Floats& gain, float eps,
              MutableFloats out) {
  const int64_t n = same_length(out, h, x, gain);
  const FloatMode mode;
  kernels(isa).rows.add_norm(h.data(), x.data(), gain.data(), n, eps, out.data());
}

void add(const std::string& isa, const Floats& a, const Floats& b, MutableFloats out) {
  const int64_t n = same_length(out, a, b);
  const FloatMode mode;
  kernels(isa).rows.add(a.data(), b.data(), n, out.data());
}

void gated_gelu(const std::string& isa, const Floats& gate, const Floats& up, MutableFloats out) {
  const int64_t n = same_length(out, gate, up);
  const FloatMode mode;
  kernels(isa).rows.gated_gelu(gate.data(), up.data(), n, out.data());
}

void softcap(const std::string& isa, const Floats& x, float cap, MutableFloats out) {
  const int64_t n = same_length(out, x);
  const FloatMode mode;
  kernels(isa).rows.softcap(x.data(), cap, n, out.data());
}

void exp(const std::string& isa, const Floats& x, MutableFloats out) {
  const int64_t n = same_length(out, x);
  const FloatMode mode;
  kernels(isa).rows.exp(x.data(), n, out.data());
}

void angles(const std::string& isa, int32_t position, const Floats& inv_freq, MutableFloats cosine,
            MutableFloats sine) {
  const int64_t n = same_length(cosine, inv_freq, sine);
  const FloatMode mode;
  kernels(isa).rows.angles(position, inv_freq.data(), n, cosine.data(), sine.data());
}

float log_sum_exp(const std::string& isa, const Floats& x) {
  if (x.shape(0) == 0) {
    throw nb::value_error("the row is empty");
  }
  const FloatMode mode;
  return kernels(isa).rows.log_sum_exp(x.data(), static_cast<int64_t>(x.shape(0)));
}

std::pair<NewArray<int32_t>, NewArray<float>> top_k(const std::string& isa, const Floats& x, int64_t k) {
  const auto n = static_cast<int64_t>(x.shape(0));
  if (k < 1 || k > n) {
    throw nb::value_error("k must be between 1 and the length of the row");
  }
  auto ids = new_array<int32_t>({static_cast<size_t>(k)});
  auto values = new_array<float>({static_cast<size_t>(k)});
  kernels(isa).rows.top_k(x.data(), n, k, ids.data(), values.data());
  return {std::move(ids), std::move(values)};
}

struct Layer {
  KVLayer kv;
  nb::object arrays;
};

Layer layer(const char* type, AnyArray4 keys, AnyArray4 values, std::optional<Scales> key_scales,
            std::optional<Scales> value_scales) {
  return {kv_layer(kv_type(type), keys, values, key_scales, value_scales),
          nb::make_tuple(keys, values, key_scales, value_scales)};
}

bool norm_rope_store(const std::string& isa, const Floats& qkv, int64_t heads, std::optional<Floats> query_gain,
                     std::optional<Floats> key_gain, float eps, float query_scale, const Floats& cosine,
                     const Floats& sine, const Layer& layer, int64_t slot, MutableFloats q) {
  const KVLayer& kv = layer.kv;
  const int64_t dim = kv.head_dim;
  auto is = [](const auto& a, int64_t n) { return static_cast<int64_t>(a.shape(0)) == n; };
  if (heads < 1 || !is(qkv, (heads + 2 * kv.kv_heads) * dim) || !is(q, heads * dim) || !is(cosine, dim / 2) ||
      !is(sine, dim / 2) || query_gain.has_value() != key_gain.has_value() || slot < 0 || slot >= kv.pages * kPage ||
      (query_gain && !(is(*query_gain, dim) && is(*key_gain, dim)))) {
    throw nb::value_error("the arguments do not fit each other");
  }
  const HeadShape shape{
      heads, kv.kv_heads, dim, query_gain ? query_gain->data() : nullptr, key_gain ? key_gain->data() : nullptr,
      eps,   query_scale};
  const FloatMode mode;
  return kernels(isa).rows.norm_rope_store(shape, qkv.data(), cosine.data(), sine.data(), q.data(), kv, slot);
}

// Attention of q [rows, heads, head_dim] as one tile, segment after segment.
void attend(const std::string& isa, const Layer& layer, int64_t kv_head, const Ints& pages, const Array<float, 3>& q,
            const Ints& first_key, const Ints& last_key, float cap, MutableFloats3 out) {
  const KVLayer& kv = layer.kv;
  const auto rows = static_cast<int64_t>(q.shape(0)), heads = static_cast<int64_t>(q.shape(1));
  const auto table = static_cast<int64_t>(pages.shape(0));
  const int64_t dim = kv.head_dim, queries = rows * heads;
  bool fits = static_cast<int64_t>(q.shape(2)) == dim && queries >= 1 && queries <= kTileQueries && kv_head >= 0 &&
              kv_head < kv.kv_heads && out.size() == q.size() && first_key.shape(0) == q.shape(0) &&
              last_key.shape(0) == q.shape(0);
  int64_t end = 0;
  for (int64_t row = 0; fits && row < rows; ++row) {
    const int64_t first = first_key.data()[row], last = last_key.data()[row];
    fits = 0 <= first && first <= last && last < table * kPage;
    for (int64_t page = first / kPage; fits && page <= last / kPage; ++page) {
      fits = pages.data()[page] >= 0 && pages.data()[page] < kv.pages;
    }
    end = std::max(end, last + 1);
  }
  if (!fits) {
    throw nb::value_error("the arguments do not fit each other");
  }
  const AttentionKernels k = kernels(isa).attention;
  const AttentionTile tile{&kv,         kv_head,          pages.data(),    rows, heads, q.data(),
                           heads * dim, first_key.data(), last_key.data(), cap};
  const auto bytes = static_cast<size_t>(k.scratch_bytes(dim) + 63) / 64 * 64;
  const std::unique_ptr<uint8_t, decltype(&std::free)> scratch(static_cast<uint8_t*>(std::aligned_alloc(64, bytes)),
                                                               &std::free);
  std::vector<float> m(static_cast<size_t>(queries)), l(m), part_m(m), part_l(m);
  std::vector<float> o(static_cast<size_t>(queries * dim)), part_o(o);
  const FloatMode mode;
  for (int64_t segment = 0; segment * kSegment < end; ++segment) {
    k.segment(tile, segment, scratch.get(), {part_m.data(), part_l.data(), part_o.data()});
    for (int64_t i = 0; i < queries; ++i) {
      const auto at = static_cast<size_t>(i);
      float* sum = o.data() + i * dim;
      const float* part = part_o.data() + i * dim;
      if (part_l[at] == 0.0f) {
        continue;
      }
      if (l[at] == 0.0f) {
        m[at] = part_m[at];
        l[at] = part_l[at];
        std::copy(part, part + dim, sum);
      } else {
        k.merge(dim, &m[at], &l[at], sum, part_m[at], part_l[at], part);
      }
    }
  }
  for (int64_t i = 0; i < queries; ++i) {
    k.finish(dim, l[static_cast<size_t>(i)], o.data() + i * dim, out.data() + i * dim);
  }
}

// Attention of q [rows, heads, head_dim] of several sequences in one layer, spread over threads.
void attend_rows(const std::string& isa, int threads, int64_t partial_floats, const Layer& layer,
                 const Array<float, 3>& q, const Ints& sequence_of, const Ints& first_key, const Ints& last_key,
                 const Array<int32_t, 2>& tables, float cap, MutableFloats3 out) {
  const KVLayer& kv = layer.kv;
  const auto rows = static_cast<int64_t>(q.shape(0)), heads = static_cast<int64_t>(q.shape(1));
  const auto width = static_cast<int64_t>(tables.shape(1));
  bool fits = static_cast<int64_t>(q.shape(2)) == kv.head_dim && heads >= 1 && heads % kv.kv_heads == 0 &&
              threads >= 1 && out.size() == q.size() && sequence_of.shape(0) == q.shape(0) &&
              first_key.shape(0) == q.shape(0) && last_key.shape(0) == q.shape(0);
  for (int64_t row = 0; fits && row < rows; ++row) {
    const int64_t first = first_key.data()[row], last = last_key.data()[row], sequence = sequence_of.data()[row];
    fits = 0 <= first && first <= last && last < width * kPage && sequence >= 0 &&
           sequence < static_cast<int64_t>(tables.shape(0));
    for (int64_t page = first / kPage; fits && page <= last / kPage; ++page) {
      const int32_t id = tables.data()[sequence * width + page];
      fits = id >= 0 && id < kv.pages;
    }
  }
  if (!fits) {
    throw nb::value_error("the arguments do not fit each other");
  }
  for (const Kernels* k : available_kernels()) {
    if (isa == k->name) {
      Machine machine(*k, threads);
      AttentionRunner runner(machine, kv.head_dim, partial_floats);
      const FloatMode mode;
      runner.run(kv, heads, cap, {rows, sequence_of.data(), first_key.data(), last_key.data()}, {tables.data(), width},
                 q.data(), out.data());
      return;
    }
  }
  throw nb::value_error("no such instruction set");
}

// How often each of `items` was visited in `phases` phases; -1 for an item that two threads had at once.
NewArray<int64_t> pool_visits(int threads, int64_t phases, int64_t items, int64_t chunk) {
  if (threads < 1 || phases < 0 || items < 0 || chunk < 1) {
    throw nb::value_error("the arguments must be positive");
  }
  auto visits = new_array<int64_t>({static_cast<size_t>(items)});
  int64_t* counts = visits.data();
  std::fill(counts, counts + items, 0);
  const nb::gil_scoped_release release;
  Pool pool(threads);
  for (int64_t phase = 0; phase < phases; ++phase) {
    // Reads what the last phase wrote, mostly on another thread: a missing barrier shows as a wrong count.
    pool.parallel(items, chunk, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        counts[i] = counts[i] == phase ? phase + 1 : -1;
      }
    });
  }
  return visits;
}

}  // namespace

void bind_check(nb::module_& m) {
  nb::module_ check = m.def_submodule("check", "Single kernels and their scalar reference, for tests.");
  check.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Kernels* k : available_kernels()) {
      names.emplace_back(k->name);
    }
    return names;
  });
  check.def("rms_norm", &rms_norm);
  check.def("add_norm", &add_norm);
  check.def("add", &add);
  check.def("gated_gelu", &gated_gelu);
  check.def("softcap", &softcap);
  check.def("exp", &exp);
  check.def("angles", &angles);
  check.def("log_sum_exp", &log_sum_exp);
  check.def("top_k", &top_k);
  nb::class_<Layer>(check, "Layer");
  check.def("layer", &layer, nb::arg("kv_type"), nb::arg("keys"), nb::arg("values"), nb::arg("key_scales").none(),
            nb::arg("value_scales").none());
  check.def("norm_rope_store", &norm_rope_store, nb::arg("isa"), nb::arg("qkv"), nb::arg("heads"),
            nb::arg("query_gain").none(), nb::arg("key_gain").none(), nb::arg("eps"), nb::arg("query_scale"),
            nb::arg("cosine"), nb::arg("sine"), nb::arg("layer"), nb::arg("slot"), nb::arg("q"));
  check.def("attend", &attend);
  check.def("attend_rows", &attend_rows);
  check.def("pool_visits", &pool_visits);
  bind_check_linear(check);
}

}  // namespace cabochon
