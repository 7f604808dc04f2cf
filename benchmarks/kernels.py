"""Speed of single matrix products on one thread, by instruction set and type of weights, beside a plain read of memory.

    python benchmarks/kernels.py [--isa NAME ...] [--cols 2048] [--seconds 0.4]

Few rows walk through a matrix that no cache holds and are measured in bytes of weights per second; many rows in
operations per second, 2 * rows * inputs * outputs each, counted once whatever the activations' terms. Figures are the
best of many runs of about a millisecond, so that other work on the machine disturbs them little.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from cabochon._native import check

MATRIX_BYTES = 128 << 20
FEW, MANY = (1, 2, 4), (8, 16, 96)


@dataclass(frozen=True)
class Format:
    name: str
    number: int
    bits: float
    """Bits of a weight, its share of the scales included."""
    quantized: bool = True


FORMATS = (
    Format("Q8_0", 8, 8.5),
    Format("Q6_K", 14, 6.5625),
    Format("Q5_K", 13, 5.5),
    Format("Q5_1", 7, 6),
    Format("Q5_0", 6, 5.5),
    Format("Q4_K", 12, 4.5),
    Format("Q4_1", 3, 5),
    Format("Q4_0", 2, 4.5),
    Format("IQ4_NL", 20, 4.5),
    Format("IQ4_XS", 23, 4.25),
    Format("Q3_K", 11, 3.4375),
    Format("Q2_K", 10, 2.625),
    Format("BF16", 30, 16, quantized=False),
    Format("F16", 1, 16, quantized=False),
    Format("F32", 0, 32, quantized=False),
)


def line(isa: str, fmt: Format, cols: int, two_terms: bool, seconds: float) -> str:
    """Figures of one type of weights for every number of rows."""
    row_bytes = cols * fmt.bits / 8
    rows = int(MATRIX_BYTES / row_bytes) // 16 * 16
    cells = []
    for tokens in FEW + MANY:
        outputs = check.outputs_per_second(isa, fmt.number, rows, cols, tokens, two_terms, seconds)
        if tokens in FEW:
            cells.append(f"{outputs * row_bytes / 1e9:7.1f}")
        else:
            cells.append(f"{2 * outputs * cols * tokens / 1e9:7.0f}")
    mode = ("int8x2" if two_terms else "int8") if fmt.quantized else "float"
    return f"{isa:16} {fmt.name:5} {mode:7}" + "".join(cells)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Speed of single matrix products on one thread.")
    parser.add_argument(
        "--isa", nargs="+", default=[name for name in check.instruction_sets() if "emulated" not in name]
    )
    parser.add_argument("--cols", type=int, default=2048, help="inputs, a multiple of 256")
    parser.add_argument("--seconds", type=float, default=0.4, help="time for each figure")
    options = parser.parse_args(arguments)
    print(f"plain read: {check.bytes_read_per_second(2 * MATRIX_BYTES, 2.0) / 1e9:.1f} GB/s")
    print(f"{options.cols} inputs".ljust(30) + "".join(f"{n:7}" for n in FEW + MANY) + " rows")
    print(" " * 30 + "   GB/s" * len(FEW) + "  GOP/s" * len(MANY))
    for isa in options.isa:
        for fmt in FORMATS:
            for two_terms in (True, False) if fmt.quantized else (True,):
                print(line(isa, fmt, options.cols, two_terms, options.seconds), flush=True)


if __name__ == "__main__":
    main()
