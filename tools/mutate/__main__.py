"""Puts faults into the package, one after the other, and runs the tests that should see them.

    python -m tools.mutate [--jobs 2] [NAME ...]

Prints for each mutation which test failed first, and after how many seconds. Fails if the tests fail without a fault,
if one is seen by no test, or if its text does not stand in the sources exactly once.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from tools.mutate.mutations import LAW, MUTATIONS, Mutation, source_of
from tools.mutate.plugin import VARIABLE

LAW_CASES = 200
"""Random mixes of requests; most faults show in the first few."""

LIMIT_S = 120
"""For the tests of one mutation."""


def run_tests(tests: tuple[str, ...], mutation: str | None = None, limit_s: float | None = None) -> tuple[bool, str]:
    """Whether the tests are green; and the first that failed, or what else went wrong."""
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "CABOCHON_LAW_CASES": str(LAW_CASES), "HYPOTHESIS_STORAGE_DIRECTORY": place}
        environment.pop(VARIABLE, None)
        if mutation is not None:
            environment[VARIABLE] = mutation
        command = [sys.executable, "-m", "pytest", "-p", "tools.mutate.plugin", "-p", "no:cacheprovider", "-q", "-x"]
        command += ["--no-header", "--tb=no", "--hypothesis-seed=0", *tests]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return False, f"NO END within {limit_s} s"
    failed = re.search(r"^FAILED (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if done.returncode == 1 and failed:
        return False, failed[1]
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return done.returncode == 0, f"BROKEN: {' '.join(last)}"


def fate(mutation: Mutation) -> tuple[bool, str, float]:
    """Whether a mutation is caught, by which test or why not, and the seconds it took."""
    start = time.monotonic()
    try:
        for edit in mutation.edits:
            edit.apply(source_of(edit.module))
    except ValueError as error:
        return False, f"DOES NOT APPLY: {error}", 0.0
    green, words = run_tests(mutation.tests, mutation.name, LIMIT_S)
    caught = not green and words.startswith("tests/")
    return caught, "SURVIVED" if green else words, time.monotonic() - start


def main() -> int:
    """Runs all, or those named; 0 if every one is caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if not options.names or mutation.name in options.names]
    unknown = sorted(set(options.names) - {mutation.name for mutation in chosen})
    if unknown:
        parser.error(f"there is no mutation {', '.join(map(repr, unknown))}; they are in tools/mutate/mutations.py")
    start = time.monotonic()
    files = sorted({test for mutation in chosen for test in mutation.tests}, key=lambda name: name == LAW)
    green, words = run_tests(tuple(files))
    if not green:
        print(f"without a mutation the tests fail: {words}", file=sys.stderr)
        return 1
    print(f"{'nothing':58} {time.monotonic() - start:6.1f} s  all green", flush=True)
    missed = 0
    with ThreadPoolExecutor(options.jobs) as threads:
        for mutation, (caught, how, seconds) in zip(chosen, threads.map(fate, chosen), strict=True):
            print(f"{mutation.name:58} {seconds:6.1f} s  {how}", flush=True)
            missed += not caught
    print(f"{len(chosen) - missed} of {len(chosen)} mutations are caught; {time.monotonic() - start:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
