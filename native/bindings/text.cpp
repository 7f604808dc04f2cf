// Strings of files.
#include <nanobind/stl/pair.h>

#include <utility>

#include "bindings/bindings.h"
#include "text/strings.h"

namespace cabochon {
namespace {

std::pair<NewArray<int64_t>, int64_t> string_ends(const Array<uint8_t, 1>& bytes, int64_t count) {
  const auto size = static_cast<int64_t>(bytes.shape(0));
  if (count < 0 || count > size / 8) {
    throw nb::value_error("string_ends: so many strings do not fit");
  }
  auto ends = new_array<int64_t>({static_cast<size_t>(count)});
  const int64_t found = find_string_ends(bytes.data(), size, count, ends.data());
  return {std::move(ends), found};
}

}  // namespace

void bind_text(nb::module_& m) { m.def("string_ends", &string_ends, nb::arg("bytes").noconvert(), nb::arg("count")); }

}  // namespace cabochon
