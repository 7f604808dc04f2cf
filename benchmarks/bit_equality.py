"""The table of every type of weights, instruction set and number of rows: are the bits those of the scalar reference?

    python -m benchmarks.bit_equality [--inputs 2048] [--outputs 80]

Matrices of random bytes, whose scales include zero, subnormal and the largest numbers, meet random activations of every
magnitude, quantised with two terms and with one. A cell counts the outputs that were compared; the command fails if any
differs in a single bit. Instruction sets that this CPU lacks are emulated where the build has them for tests.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from tests.native.test_linear import activations
from tests.native.weight_bytes import FORMATS, random_matrix

from cabochon._native import check

ROWS = (1, 2, 7, 64)


def main() -> int:
    """Prints the table; 0 if all bits are equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=2048, help="a multiple of 256")
    parser.add_argument("--outputs", type=int, default=80)
    options = parser.parse_args()
    isas = check.instruction_sets()
    print(f"rows {', '.join(map(str, ROWS))} of {options.inputs} inputs, {options.outputs} outputs; outputs compared:")
    print("type    mode    " + "".join(f"{isa:>18}" for isa in isas))
    all_equal = True
    for name, fmt in FORMATS.items():
        rng = np.random.default_rng(fmt.number)
        for two_terms in (True, False) if fmt.quantized else (True,):
            cells = dict.fromkeys(isas, "")
            for scales in ("usual", "extreme"):
                file = random_matrix(rng, fmt, options.outputs, options.inputs, scales)
                for tokens in ROWS:
                    x = activations(rng, tokens, options.inputs)
                    want = check.linear("reference", fmt.number, options.outputs, file, x, two_terms)
                    for isa in isas:
                        got = check.linear(isa, fmt.number, options.outputs, file, x, two_terms)
                        if not _same_bits(got, want):
                            cells[isa] += f" {tokens}!"
            all_equal = all_equal and not any(cells.values())
            compared = 2 * sum(ROWS) * options.outputs
            mode = ("int8x2" if two_terms else "int8") if fmt.quantized else "float"
            shown = (f"differs:{cell}" if cell else f"{compared} equal" for cell in cells.values())
            print(f"{name:7} {mode:7}" + "".join(f"{cell:>18}" for cell in shown), flush=True)
    print("every bit is the reference's" if all_equal else "SOME BITS DIFFER")
    return 0 if all_equal else 1


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Any NaN equals any other."""
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


if __name__ == "__main__":
    sys.exit(main())
