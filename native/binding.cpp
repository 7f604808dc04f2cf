// The module `cabochon._native`. Only this file and bindings/ know of Python.
#include "bindings/bindings.h"

#ifndef CABOCHON_VERSION
#define CABOCHON_VERSION "unknown"
#endif

namespace nb = nanobind;

NB_MODULE(_native, m) {
  m.doc() = "Cabochon's native core.";
  // A model still in use when the interpreter ends is no mistake.
  nb::set_leak_warnings(false);
  m.def("version", [] { return CABOCHON_VERSION; }, "The version this module was built as.");
  cabochon::bind_numerics(m);
  cabochon::bind_program(m);
  cabochon::bind_text(m);
  cabochon::bind_check(m);
}
