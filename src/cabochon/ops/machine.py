"""What the native backend runs on: an instruction set and a number of threads."""

from __future__ import annotations

import os

from cabochon import _native
from cabochon.errors import RunError, UsageError
from cabochon.ops.cpus import default_threads

ISA_VARIABLE = "CABOCHON_ISA"
"""Environment variable that names an instruction set."""


def available_instruction_sets() -> tuple[str, ...]:
    """Instruction sets that this build has and this CPU runs, best first: ``avx512``, ``avxvnni``, ``avx2``,
    ``portable``.

    A build for tests may add ``avx512-emulated`` and ``avxvnni-emulated`` at the end.
    """
    return tuple(_native.instruction_sets())


def open_machine(threads: int | None = None, isa: str | None = None) -> _native.Machine:
    """Starts the threads that programs run on, physical cores by default.

    Without ``isa`` the variable ``CABOCHON_ISA`` decides, and without that the best set there is. All give the same
    bits.

    Raises ``UsageError`` for an instruction set that is unknown or that this CPU lacks, or less than one thread;
    ``RunError`` if the system starts no more threads.
    """
    available = available_instruction_sets()
    name = isa or os.environ.get(ISA_VARIABLE) or available[0]
    if name not in available:
        asked = "instruction set" if isa else ISA_VARIABLE
        raise UsageError(f"{asked} {name!r} cannot be used here; available: {', '.join(available)}")
    count = default_threads() if threads is None else threads
    try:
        return _native.Machine(name, count)
    except ValueError as error:
        raise UsageError(f"threads is {count}: {error}") from None
    except RuntimeError as error:
        raise RunError(f"{count} threads could not be started ({error})") from None
