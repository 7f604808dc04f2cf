"""Speed of single matrix products on one thread, by instruction set and type of weights, beside their ceilings.

    python benchmarks/kernels.py [--isa NAME ...] [--cols 2048] [--seconds 0.1] [--rounds 3]

Few rows walk through a matrix that no cache holds and are measured in bytes of weights per second; their ceiling is a
plain read of memory. Many rows are measured in operations per second, 2 * rows * inputs * outputs each, counted once
whatever the activations' terms; their ceiling is the integer dot products alone, over one block in the first cache
(products with float weights have none). A ceiling is measured right before each figure and after it. Every measurement
is the best of many runs of about a millisecond, so that other work on the machine disturbs it little; shown are the
median of the rounds and the median share of the ceiling.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from cabochon._native import check

MATRIX_BYTES = 128 << 20
FEW, MANY = (1, 2, 4), (8, 16, 96)


@dataclass(frozen=True)
class Format:
    name: str
    number: int
    bits: float
    """Bits of a weight, its share of the scales included."""
    integer_bits: int
    """Of the weight alone; 0 for floats."""


FORMATS = (
    Format("Q8_0", 8, 8.5, 8),
    Format("Q6_K", 14, 6.5625, 6),
    Format("Q5_K", 13, 5.5, 5),
    Format("Q5_1", 7, 6, 5),
    Format("Q5_0", 6, 5.5, 5),
    Format("Q4_K", 12, 4.5, 4),
    Format("Q4_1", 3, 5, 4),
    Format("Q4_0", 2, 4.5, 4),
    Format("IQ4_NL", 20, 4.5, 8),
    Format("IQ4_XS", 23, 4.25, 8),
    Format("Q3_K", 11, 3.4375, 3),
    Format("Q2_K", 10, 2.625, 2),
    Format("BF16", 30, 16, 0),
    Format("F16", 1, 16, 0),
    Format("F32", 0, 32, 0),
)


@dataclass(frozen=True)
class Bench:
    """How the figures of one line are measured."""

    isa: str
    cols: int
    seconds: float
    rounds: int

    def beside(self, ceiling: Callable[[], float] | None, figure: Callable[[], float]) -> tuple[float, float | None]:
        """The median of a figure and of its share of the ceiling, measured in turn."""
        values, shares = [], []
        before = ceiling() if ceiling else 0.0
        for _ in range(self.rounds):
            value = figure()
            values.append(value)
            if ceiling:
                after = ceiling()
                shares.append(2 * value / (before + after))
                before = after
        return median(values), median(shares) if shares else None

    def line(self, fmt: Format, two_terms: bool) -> str:
        """Figures of one type of weights for every number of rows."""
        row_bytes = self.cols * fmt.bits / 8
        rows = int(MATRIX_BYTES / row_bytes) // 16 * 16

        def outputs(tokens: int) -> float:
            return check.outputs_per_second(self.isa, fmt.number, rows, self.cols, tokens, two_terms, self.seconds)

        def read() -> float:
            return check.bytes_read_per_second(MATRIX_BYTES, self.seconds / 2)

        def dots() -> float:
            return check.dots_per_second(self.isa, two_terms, fmt.integer_bits, self.seconds / 2)

        cells = []
        for n in FEW:
            cells.append(_cell(self.beside(read, lambda n=n: outputs(n) * row_bytes), 1))  # type: ignore[misc]
        for n in MANY:
            operations = 2 * self.cols * n
            ceiling = dots if fmt.integer_bits else None
            cells.append(_cell(self.beside(ceiling, lambda n=n, o=operations: outputs(n) * o), 0))  # type: ignore[misc]
        mode = ("int8x2" if two_terms else "int8") if fmt.integer_bits else "float"
        return f"{self.isa:10} {fmt.name:6} {mode:7}" + "".join(cells)


def _cell(figure: tuple[float, float | None], digits: int) -> str:
    value, share = figure
    return f"{value / 1e9:7.{digits}f} " + (f"{share:4.0%}" if share is not None else "   -")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    real = [name for name in check.instruction_sets() if "emulated" not in name]
    parser.add_argument("--isa", nargs="+", default=real)
    parser.add_argument("--cols", type=int, default=2048, help="inputs, a multiple of 256")
    parser.add_argument("--seconds", type=float, default=0.1, help="time for each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    print(
        f"plain read: {check.bytes_read_per_second(2 * MATRIX_BYTES, 1.0) / 1e9:.1f} GB/s; integer dot products alone:"
    )
    for isa in options.isa:
        alone = [("int8x2", True, 8), *((f"int8 with {bits} bits", False, bits) for bits in (8, 6, 5, 4))]
        shown = (
            f"{name} {check.dots_per_second(isa, two, bits, options.seconds) / 1e9:.0f}" for name, two, bits in alone
        )
        print(f"  {isa}: {', '.join(shown)} GOP/s")
    print("Share of the ceiling beside each figure; one thread.")
    print(f"{options.cols} inputs".ljust(25) + "".join(f"{n:7}" + " " * 5 for n in FEW + MANY) + " rows")
    print(" " * 25 + "   GB/s     " * len(FEW) + "  GOP/s     " * len(MANY))
    for isa in options.isa:
        bench = Bench(isa, options.cols, options.seconds, options.rounds)
        for fmt in FORMATS:
            for two_terms in (True, False) if fmt.integer_bits else (True,):
                print(bench.line(fmt, two_terms), flush=True)


if __name__ == "__main__":
    main()
