"""What reuse of keys and values saves on the real model, and that it changes no bit.

    python benchmarks/reuse.py [--model demo] [--save FILE]

1. A conversation of 3,000 random ids, then a next turn of 40 more.
2. A question after a system prompt of 2,000 ids that two earlier ones shared, when 50 other conversations have come
   between in a memory that holds few of them.

For each: the tokens run for it, the time of its first token beside that of the same prompt without reuse, and whether
token ids and log-probabilities are the same. Fails if the tokens run are more than the new ones and one page, or if any
bit differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import cabochon
from cabochon.session import Generation, Session
from cabochon.types import PAGE

CONVERSATION, TURN = 3000, 40
SYSTEM, QUESTION, OTHERS = 2000, 60, 50
TOKENS = 24
KV_MEMORY = 220 << 20
ROUNDS = 3


def generate(session: Session, ids: list[int]) -> Generation:
    return session.generate(ids, max_tokens=TOKENS, temperature=0, ignore_eos=True, logprobs=0)


def draw(random: Random, n: int) -> list[int]:
    return [random.randrange(1000, 200_000) for _ in range(n)]


def next_turn(session: Session, random: Random) -> tuple[list[int], int]:
    """A prompt that goes on from a finished conversation, and how many of its ids are new."""
    first = [2, *draw(random, CONVERSATION - 1)]
    reply = list(generate(session, first).token_ids)
    return [*first, *reply, *draw(random, TURN)], TURN


def shared_beginning(session: Session, random: Random) -> tuple[list[int], int]:
    """A prompt that begins as two earlier ones did, with much between; its question is new."""
    system = [2, *draw(random, SYSTEM - 1)]
    for _ in range(2):
        generate(session, [*system, *draw(random, QUESTION)])
    for _ in range(OTHERS):
        generate(session, [2, *draw(random, 300)])
    return [*system, *draw(random, QUESTION)], QUESTION


def main() -> int:
    """Runs both; 0 if as little was run as should be and every bit is the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    good = True
    for name, case in (("next turn", next_turn), ("shared beginning", shared_beginning)):
        with_reuse = cabochon.load(options.model, kv_memory=KV_MEMORY)
        without = cabochon.load(options.model, prefix_cache=False)
        prompt, new = case(with_reuse, Random(7))
        again = generate(with_reuse, prompt)
        fresh = [generate(without, prompt) for _ in range(ROUNDS)]
        run = len(prompt) - again.reused_tokens
        seconds = sorted(result.timings.first_token_s or 0.0 for result in fresh)[ROUNDS // 2]
        ratio = seconds / (again.timings.first_token_s or 1.0)
        same = all((result.token_ids, result.logprobs) == (again.token_ids, again.logprobs) for result in fresh)
        good = good and same and run <= new + PAGE
        report[name] = {"prompt": len(prompt), "run": run, "first_token_ratio": round(ratio, 1), "same_bits": same}
        print(
            f"{name}: {len(prompt):,} tokens, {new} of them new, {run} run; first token after"
            f" {again.timings.first_token_s:.3f} s, without reuse {seconds:.3f} s, ratio {ratio:.1f};"
            f" bits {'equal' if same else 'DIFFER'}"
        )
    if options.save:
        options.save.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
