#!/usr/bin/env bash
# The wheel alone, as someone has it who asked for no extra: installed into an environment of its own, all its modules
# imported, its command run on a model of random weights.
#
# usage: tools/minimal/test.sh WHEEL
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wheel=$(realpath "$1")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"${PYTHON:-python3}" -m venv "$place/venv"
"$place/venv/bin/pip" --quiet --disable-pip-version-check install "$wheel"
cd "$place"  # the sources must not be found
export PATH=$place/venv/bin:$PATH

python "$here/imports.py"
cabochon --help >help.txt
cabochon doctor
python -c 'from cabochon.testing.tiny import write_tiny_gguf; write_tiny_gguf("tiny.gguf")'
cabochon inspect --model tiny.gguf >inspect.txt
cabochon verify "some words" --model tiny.gguf
cabochon generate "some words" --model tiny.gguf --seed 1 --max-tokens 8
cabochon trace "some words" --model tiny.gguf --html page.html >trace.txt

# What an extra is needed for is refused in one line that names it.
refused() {
  if "$@" 2>message.txt; then
    echo "$* did its work without the extra" >&2
    exit 1
  fi
  cat message.txt
  [ "$(wc -l <message.txt)" -eq 1 ] && grep -q 'pip install "cabochon\[' message.txt
}
refused cabochon generate hello --model tiny.gguf --backend torch
refused python -c '
import sys
from cabochon.compat import gemma_pytorch
from cabochon.errors import MissingDependencyError
try:
    gemma_pytorch.get_model_config("270m")
except MissingDependencyError as error:
    sys.exit(str(error))'
HOME=$place XDG_CACHE_HOME=$place/cache refused cabochon generate hello
