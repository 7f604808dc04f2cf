// Machine, weights and programs as Python builds and runs them.
#include "program/program.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/kv.h"
#include "kernels/choose.h"
#include "memory/memory.h"
#include "numerics/float_mode.h"

namespace cabochon {
namespace {

using Bytes = Array<uint8_t, 1>;
using Ints2 = Array<int32_t, 2>;

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels* k : available_kernels()) {
    names.emplace_back(k->name);
  }
  return names;
}

std::shared_ptr<Machine> new_machine(const std::string& isa, int threads) {
  if (threads < 1 || threads > 4096) {
    throw nb::value_error("the number of threads must be between 1 and 4096");
  }
  for (const Kernels* k : available_kernels()) {
    if (isa == k->name) {
      return std::make_shared<Machine>(*k, threads);
    }
  }
  throw nb::value_error("no such instruction set");
}

// ---- Weights ----------------------------------------------------------------------------------------------------

// One stretch of memory that packed weights are laid into one after another.
struct WeightMemory {
  Memory memory;
  size_t used = 0;
};

struct PythonWeight {
  PackedWeight packed;
  std::shared_ptr<WeightMemory> memory;

  uint8_t* group(int64_t g) const { return const_cast<uint8_t*>(packed.group(g)); }
};

size_t packed_bytes(int32_t format, int64_t rows, int64_t cols) {
  constexpr int64_t kMost = int64_t{1} << 32;
  const auto type = static_cast<Format>(format);
  if (rows < 1 || cols < 1 || rows > kMost || cols > kMost || packed_group_bytes(type, cols) == 0) {
    throw nb::value_error("no such weight: its type is unknown, or its columns are not whole blocks of it");
  }
  return whole_lines(packed_group_bytes(type, cols) * static_cast<size_t>((rows + kLanes - 1) / kLanes));
}

PythonWeight new_weight(std::shared_ptr<WeightMemory> memory, int32_t format, int64_t rows, int64_t cols) {
  const size_t bytes = packed_bytes(format, rows, cols);
  if (bytes > memory->memory.bytes() - memory->used) {
    throw nb::value_error("the weight memory is full");
  }
  const auto type = static_cast<Format>(format);
  const uint8_t* data = memory->memory.data() + memory->used;
  memory->used += bytes;
  return {{type, rows, cols, packed_group_bytes(type, cols), data}, std::move(memory)};
}

// Groups first <= g < last of a matrix; `file` holds just their rows.
void pack(Machine& machine, const PythonWeight& weight, const Bytes& file, int64_t first, int64_t last) {
  const PackedWeight& w = weight.packed;
  if (first < 0 || first >= last || last > w.groups()) {
    throw nb::value_error("no such groups of rows");
  }
  const size_t row_bytes = file_row_bytes(w.format, w.cols);
  const int64_t rows = std::min(last * kLanes, w.rows) - first * kLanes;
  if (file.shape(0) != static_cast<size_t>(rows) * row_bytes) {
    throw nb::value_error("the file's bytes are not those of the rows");
  }
  const uint8_t* from = file.data();
  const nb::gil_scoped_release release;
  const Machine::Turn turn(machine);
  machine.pool.parallel(last - first, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      const int64_t present = std::min<int64_t>(kLanes, rows - g * kLanes);
      pack_group(w.format, from + static_cast<size_t>(g * kLanes) * row_bytes, present, w.cols,
                 weight.group(first + g));
    }
  });
}

// ---- Programs ---------------------------------------------------------------------------------------------------

// Keeps alive what the program only points to.
struct PythonProgram {
  Program program;
  std::vector<std::shared_ptr<WeightMemory>> weights;
  std::vector<nb::object> arrays;
};

std::vector<float> copied(const Floats& x) { return {x.data(), x.data() + x.shape(0)}; }

int32_t add_weight(PythonProgram& p, const PythonWeight& weight) {
  p.weights.push_back(weight.memory);
  return p.program.add_weight(weight.packed);
}

int32_t add_layer(PythonProgram& p, int64_t group, const char* type, AnyArray4 keys, AnyArray4 values,
                  std::optional<Scales> key_scales, std::optional<Scales> value_scales) {
  const KVLayer kv = kv_layer(kv_type(type), keys, values, key_scales, value_scales);
  p.arrays.push_back(nb::make_tuple(keys, values, key_scales, value_scales));
  return p.program.add_layer(group, kv);
}

void require(bool holds, const char* what) {
  if (!holds) {
    throw nb::value_error(what);
  }
}

int32_t run(PythonProgram& p, const Ints& ids, const Ints& positions, const Ints& sequences, const Ints2& slots,
            const Ints2& first_key, const Ints2& last_key, const std::vector<Ints2>& tables, const Ints& logit_rows,
            const Ints& best_rows, bool with_head) {
  const size_t rows = ids.shape(0), groups = static_cast<size_t>(p.program.groups());
  require(positions.shape(0) == rows && sequences.shape(0) == rows, "positions and sequences need one entry per row");
  for (const Ints2* a : {&slots, &first_key, &last_key}) {
    require(a->shape(0) == groups && a->shape(1) == rows, "slots and key ranges need one entry per page group and row");
  }
  require(tables.size() == groups, "as many page tables as page groups are needed");
  Step step{static_cast<int64_t>(rows),
            tables.empty() ? 0 : static_cast<int64_t>(tables[0].shape(0)),
            static_cast<int64_t>(logit_rows.shape(0)),
            static_cast<int64_t>(best_rows.shape(0)),
            ids.data(),
            positions.data(),
            sequences.data(),
            slots.data(),
            first_key.data(),
            last_key.data(),
            {},
            logit_rows.data(),
            best_rows.data()};
  for (const Ints2& table : tables) {
    require(static_cast<int64_t>(table.shape(0)) == step.sequences, "page tables need one row per sequence");
    step.tables.push_back({table.data(), static_cast<int64_t>(table.shape(1))});
  }
  const nb::gil_scoped_release release;
  return p.program.run(step, with_head);
}

void run_head(PythonProgram& p, const Floats2& hidden) {
  require(p.program.finished(), "the program is not finished");
  require(static_cast<int64_t>(hidden.shape(1)) == p.program.hidden_width(), "hidden states have another width");
  const nb::gil_scoped_release release;
  p.program.run_head(hidden.data(), static_cast<int64_t>(hidden.shape(0)));
}

using View = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;

View view(nb::handle self, float* data, int64_t rows, int64_t most, int64_t width) {
  require(rows >= 0 && rows <= most, "there are not so many rows");
  return View(data, {static_cast<size_t>(rows), static_cast<size_t>(width)}, self);
}

View hidden(nb::handle self) {
  const Program& p = nb::cast<PythonProgram&>(self).program;
  require(p.finished(), "the program is not finished");
  return view(self, p.hidden(), p.kept(), p.sizes().max_rows, p.hidden_width());
}

View kept(nb::handle self, int32_t value) {
  const Program& p = nb::cast<PythonProgram&>(self).program;
  require(p.finished(), "the program is not finished");
  float* rows = p.kept_rows_of(value);
  return view(self, rows, p.kept(), p.sizes().max_rows, p.width_of(value));
}

View logits(nb::handle self, int64_t rows) {
  const Program& p = nb::cast<PythonProgram&>(self).program;
  require(p.finished(), "the program is not finished");
  return view(self, p.logits(), rows, p.sizes().max_head_rows, p.vocab());
}

// None where logits are capped.
nb::object peaks(nb::handle self, int64_t rows) {
  const Program& p = nb::cast<PythonProgram&>(self).program;
  require(p.finished(), "the program is not finished");
  return p.peaks() == nullptr ? nb::none()
                              : nb::cast(view(self, p.peaks(), rows, p.sizes().max_head_rows, p.peaks_width()));
}

}  // namespace

void bind_program(nb::module_& m) {
  m.def("instruction_sets", &instruction_sets);
  m.def("packed_bytes", &packed_bytes, nb::arg("format"), nb::arg("rows"), nb::arg("cols"));

  nb::class_<Machine>(m, "Machine")
      .def(nb::new_(&new_machine), nb::arg("isa"), nb::arg("threads"))
      .def_prop_ro("isa", [](const Machine& machine) { return machine.kernels.name; })
      .def_prop_ro("threads", [](const Machine& machine) { return machine.pool.threads(); })
      .def("pack", &pack, nb::arg("weight"), nb::arg("file").noconvert(), nb::arg("first_group"),
           nb::arg("last_group"));

  nb::class_<WeightMemory>(m, "WeightMemory")
      .def(nb::new_([](size_t bytes) { return std::make_shared<WeightMemory>(WeightMemory{Memory(bytes, true)}); }),
           nb::arg("bytes"));

  nb::class_<PythonWeight>(m, "Weight")
      .def(nb::new_(&new_weight), nb::arg("memory"), nb::arg("format"), nb::arg("rows"), nb::arg("cols"))
      .def_prop_ro("groups", [](const PythonWeight& w) { return w.packed.groups(); })
      .def_prop_ro("rows", [](const PythonWeight& w) { return w.packed.rows; })
      .def_prop_ro("cols", [](const PythonWeight& w) { return w.packed.cols; });

  nb::class_<PythonProgram> program(m, "Program");
  program
      .def(
          "__init__",
          [](PythonProgram* self, std::shared_ptr<Machine> machine, int64_t max_rows, int64_t max_head_rows,
             int64_t columns, int64_t head_columns, bool two_terms) {
            new (self) PythonProgram{
                Program(std::move(machine), {max_rows, max_head_rows, columns, head_columns, two_terms}), {}, {}};
          },
          nb::arg("machine"), nb::arg("max_rows"), nb::arg("max_head_rows"), nb::arg("columns"),
          nb::arg("head_columns"), nb::arg("two_terms"))
      .def(
          "value",
          [](PythonProgram& p, int64_t width, int64_t place, int32_t rows) {
            require(rows >= 0 && rows <= 2, "no such kind of rows");
            return p.program.add_value(width, place, static_cast<Rows>(rows));
          },
          nb::arg("width"), nb::arg("place"), nb::arg("rows"))
      .def("weight", &add_weight, nb::arg("weight"))
      .def(
          "gain", [](PythonProgram& p, const Floats& x) { return p.program.add_gain(copied(x)); },
          nb::arg("values").noconvert())
      .def(
          "rope", [](PythonProgram& p, const Floats& x) { return p.program.add_rope(copied(x)); },
          nb::arg("inv_freq").noconvert())
      .def("layer", &add_layer, nb::arg("group"), nb::arg("kv_type"), nb::arg("keys").noconvert(),
           nb::arg("values").noconvert(), nb::arg("key_scales").noconvert().none(),
           nb::arg("value_scales").noconvert().none())
      .def(
          "finish",
          [](PythonProgram& p, int32_t hidden, int32_t head_in, int32_t logits) {
            p.program.finish(hidden, head_in, logits);
          },
          nb::arg("hidden"), nb::arg("head_in"), nb::arg("logits"));

  program
      .def("embed",
           [](PythonProgram& p, int32_t out, int32_t table, float scale) { p.program.add(Embed{out, table, scale}); })
      .def("rms_norm", [](PythonProgram& p, int32_t out, int32_t x, int32_t gain,
                          float eps) { p.program.add(RmsNorm{out, x, gain, eps}); })
      .def("add_norm", [](PythonProgram& p, int32_t out, int32_t h, int32_t x, int32_t gain,
                          float eps) { p.program.add(AddNorm{out, h, x, gain, eps}); })
      .def("add", [](PythonProgram& p, int32_t out, int32_t a, int32_t b) { p.program.add(Add{out, a, b}); })
      .def("linear", [](PythonProgram& p, int32_t out, int32_t x,
                        std::vector<int32_t> weights) { p.program.add(Linear{out, x, std::move(weights)}); })
      .def("norm_rope_store",
           [](PythonProgram& p, int32_t out, int32_t qkv, int32_t layer, int32_t rope, int64_t heads,
              int32_t query_gain, int32_t key_gain, float eps, float query_scale) {
             p.program.add(NormRopeStore{out, qkv, layer, rope, heads, query_gain, key_gain, eps, query_scale});
           })
      .def("attend", [](PythonProgram& p, int32_t out, int32_t q, int32_t layer, int64_t heads,
                        float softcap) { p.program.add(Attend{out, q, layer, heads, softcap}); })
      .def("gated_gelu", [](PythonProgram& p, int32_t out, int32_t x) { p.program.add(GatedGelu{out, x}); })
      .def("keep_rows", [](PythonProgram& p, int32_t out, int32_t x) { p.program.add(KeepRows{out, x}); })
      .def("softcap", [](PythonProgram& p, int32_t out, int32_t x, float cap) { p.program.add(Softcap{out, x, cap}); });

  program
      .def("run", &run, nb::arg("ids").noconvert(), nb::arg("positions").noconvert(), nb::arg("sequences").noconvert(),
           nb::arg("slots").noconvert(), nb::arg("first_key").noconvert(), nb::arg("last_key").noconvert(),
           nb::arg("page_tables").noconvert(), nb::arg("logit_rows").noconvert(), nb::arg("best_rows").noconvert(),
           nb::arg("with_head"))
      .def("run_head", &run_head, nb::arg("hidden").noconvert())
      .def("hidden", &hidden)
      .def("kept", &kept, nb::arg("value"))
      .def("logits", &logits, nb::arg("rows"))
      .def("peaks", &peaks, nb::arg("rows"))
      .def("bests", [](const PythonProgram& p) { return p.program.bests(); })
      .def_prop_ro("machine", [](const PythonProgram& p) { return p.program.machine(); })
      .def_prop_ro("nbytes", [](const PythonProgram& p) { return p.program.bytes(); })
      .def_prop_ro("counters", [](const PythonProgram& p) {
        const Counters& c = p.program.counters();
        nb::dict d;
        d["runs"] = c.runs;
        d["rows"] = c.rows;
        d["pairs"] = c.pairs;
        d["kv_bytes_read"] = c.kv_bytes_read;
        d["kv_bytes_written"] = c.kv_bytes_written;
        return d;
      });
}

}  // namespace cabochon
