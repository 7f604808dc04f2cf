#!/usr/bin/env bash
# The native tests under sanitizers: a copy of the package of its own, built with them, and an interpreter that is not.
#
# usage: tools/sanitize/test.sh address,undefined|thread [PYTEST_ARGUMENT...]      instead of the tests named below
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

sanitize=$1
shift
bin=.venv/bin
out=$PWD/build/sanitize/${sanitize//,/-}
cxx=${CXX:-g++}

# Where threads meet; or wherever native code is given something to read.
case $sanitize in
  *thread*)
    library=libtsan.so
    tests=(
      tests/native/test_pool.py tests/native/test_program.py
      tests/native/test_attention.py::test_however_rows_are_spread_over_threads
      tests/laws/test_recorded_bits.py
      tests/laws/test_native_laws.py::test_threads_and_instruction_sets_change_no_bit
    )
    ;;
  *)
    library=libasan.so
    tests=(
      tests/native tests/laws/test_recorded_bits.py
      tests/unit/test_strings.py tests/unit/test_gguf_fuzz.py tests/unit/test_native_ops.py tests/unit/test_sampler.py
    )
    ;;
esac
if [ $# -gt 0 ]; then
  tests=("$@")
fi

# Code that this CPU cannot run is not worth the minutes that it takes to compile.
leave_out=()
grep -qsw avx512_vnni /proc/cpuinfo || leave_out+=(-C cmake.define.CABOCHON_COMPILER_AVX512=OFF)
grep -qsw avx_vnni /proc/cpuinfo || leave_out+=(-C cmake.define.CABOCHON_COMPILER_AVXVNNI=OFF)
"$bin/pip" --quiet --disable-pip-version-check install --upgrade --no-deps --no-build-isolation --target "$out/site" . \
  -C build-dir="$out/objects" -C install.strip=false -C cmake.define.CABOCHON_SANITIZE="$sanitize" "${leave_out[@]}"

# Started from .venv the interpreter would find the ordinary build first; so it is the one under the virtual
# environment, with the environment's packages on its path. -S: no other packages.
packages=$("$bin/python" -c 'import sys; print(":".join(p for p in sys.path if p.endswith("site-packages")))')
python=$("$bin/python" -c 'import sys; print(sys._base_executable)')

export PYTHONPATH=$out/site:$packages PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1
# The interpreter itself leaves memory behind at its end.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS="halt_on_error=1 die_after_fork=0"
# The sanitizer's library comes first, so that it sees every allocation and every lock. It wants its memory in certain
# places, which random addresses may take. What it says as it ends the process must not be captured.
LD_PRELOAD="$("$cxx" -print-file-name=$library) $("$cxx" -print-file-name=libstdc++.so)" \
  setarch --addr-no-randomize "$python" -S -m pytest -p no:cacheprovider --capture=sys "${tests[@]}"
