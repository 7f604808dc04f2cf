// The one file that knows Python.

#include <nanobind/nanobind.h>

#ifndef CABOCHON_VERSION
#define CABOCHON_VERSION "unknown"
#endif

NB_MODULE(_native, m) {
    m.doc() = "Cabochon's native core.";
    m.def("version", [] { return CABOCHON_VERSION; }, "The version this module was built as.");
}
