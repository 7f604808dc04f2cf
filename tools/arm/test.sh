#!/usr/bin/env bash
# The package on 64-bit ARM, on a machine that is something else: cross-compiled, and its tests run under QEMU's user
# mode emulation with Debian's arm64 Python. Everything lands in build/arm; nothing is installed on this machine.
#
# usage: tools/arm/test.sh [PYTEST_ARGUMENT...]      instead of all of tests/native and tests/laws
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bin=$PWD/.venv/bin
arm=$PWD/build/arm
root=$arm/root        # what Debian's packages hold
site=$arm/site        # Python packages
package=$arm/package  # ours
python=$arm/python3

# ---- What this machine must have ----------------------------------------------------------------------------------

missing=()
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
if [ ${#missing[@]} -gt 0 ]; then
  echo "make test-arm needs (as Debian names them): ${missing[*]}" >&2
  exit 1
fi
for tool in apt-get dpkg-deb; do
  if ! command -v "$tool" >/dev/null; then
    echo "make test-arm gets its arm64 Python from Debian's packages, and needs $tool for that" >&2
    exit 1
  fi
done

# ---- An arm64 Python: Debian's packages, unpacked -------------------------------------------------------------------

# An apt of our own, with this machine's sources but arm64 its only architecture and nothing installed.
apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User= \
    -o Dir::State="$arm/apt/state" -o Dir::State::status="$arm/apt/state/status" -o Dir::Cache="$arm/apt/cache" \
    -o Acquire::Languages=none "$@"
}

if [ ! -e "$root/.complete" ]; then
  rm -rf "$root" "$arm/apt"
  mkdir -p "$root" "$arm/apt/state/lists/partial" "$arm/apt/cache/archives/partial"
  : >"$arm/apt/state/status"
  # Not every source need have arm64 packages, as long as those below are found.
  apt update || echo "some of this machine's package sources gave nothing for arm64" >&2
  apt --download-only --no-install-recommends -y install \
    python3-minimal libpython3-stdlib libpython3-dev libstdc++6 >/dev/null
  for deb in "$arm"/apt/cache/archives/*.deb; do
    dpkg-deb -x "$deb" "$root"
  done
  touch "$root/.complete"
fi

# CMake, too, asks this one about versions and file names.
cat >"$python" <<SCRIPT
#!/bin/sh
exec qemu-aarch64 -L '$root' '$root/usr/bin/python3' "\$@"
SCRIPT
chmod +x "$python"
version=$("$python" -S -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# ---- The packages of the default install and of the tests -----------------------------------------------------------

if [ ! "$site/.complete" -nt pyproject.toml ]; then
  rm -rf "$site"
  mapfile -t wanted < <("$bin/python" - <<'SCRIPT'
import re, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
tests = ("gguf", "hypothesis", "pytest")
print(*project["dependencies"], sep="\n")
print(*(r for r in project["optional-dependencies"]["dev"] if re.split(r"[^\w-]", r)[0] in tests), sep="\n")
SCRIPT
  )
  platforms=(--platform manylinux2014_aarch64)
  for minor in $(seq 17 36); do
    platforms+=(--platform "manylinux_2_${minor}_aarch64")
  done
  "$bin/pip" --quiet --disable-pip-version-check install --target "$site" --only-binary=:all: \
    --implementation cp --python-version "$version" "${platforms[@]}" "${wanted[@]}"
  touch "$site/.complete"
fi

# ---- Our package ------------------------------------------------------------------------------------------------------

export PATH=$bin:$PATH
cmake -G Ninja -S . -B "$arm/objects" --log-level=WARNING \
  -DCMAKE_TOOLCHAIN_FILE=tools/arm/toolchain.cmake -DCABOCHON_WERROR=ON \
  -DPython_EXECUTABLE="$python" -DPython_INCLUDE_DIR="$root/usr/include/python$version" \
  -DCMAKE_CXX_FLAGS="-idirafter $root/usr/include" \
  -Dnanobind_DIR="$("$bin/python" -m nanobind --cmake_dir)"
cmake --build "$arm/objects" --parallel "${JOBS:-2}"
rm -rf "$package"
mkdir -p "$package"
cp -r src/cabochon "$package/"
cmake --install "$arm/objects" --prefix "$package" >/dev/null

# ---- The tests --------------------------------------------------------------------------------------------------------

# Left out: what needs PyTorch, what looks at the objects of this machine's own build, and what starts a process (which
# would be one that this machine cannot run).
left_out=(
  --ignore tests/laws/test_torch_laws.py
  --ignore tests/native/test_isa_isolation.py
  --deselect tests/native/test_program.py::test_a_forked_child_computes_alone_and_ends
  -k "not torch"
)
if [ $# -eq 0 ]; then
  set -- tests/native tests/laws
fi
# -S: none of this machine's packages.
PYTHONPATH=$package:$site:$PWD PYTHONDONTWRITEBYTECODE=1 \
  "$python" -S -m pytest -p no:cacheprovider "${left_out[@]}" "$@"
