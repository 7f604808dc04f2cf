"""What reuse of keys and values saves on the real model, and that it changes no bit.

    python benchmarks/reuse.py [--model demo] [--save FILE]

1. A conversation of 3,000 random ids, then a next turn of 40 more.
2. A question after a system prompt of 2,000 ids that two earlier ones shared, when 50 other conversations have come
   between in a memory that holds few of them.
3. The conversation of 1, saved to a file that a new process loads; the next turn there.

For each: the tokens run for it, the time of its first token beside that of the same prompt without reuse, and whether
token ids and log-probabilities are the same. Fails if the tokens run are more than the new ones and one page, or if any
bit differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import cabochon
from cabochon.session import Generation, Session
from cabochon.types import PAGE

CONVERSATION, TURN = 3000, 40
SYSTEM, QUESTION, OTHERS = 2000, 40, 50
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


def in_new_process(model: str, path: Path, new: list[int]) -> dict[str, Any]:
    """What a next turn after the conversation at ``path`` gives in a process that has done nothing else."""
    command = [sys.executable, __file__, "--model", model, "--go-on", str(path), json.dumps(new)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def go_on(model: str, path: str, new: str) -> None:
    """The new process's part."""
    session = cabochon.load(model, kv_memory=KV_MEMORY)
    start = time.perf_counter()
    ids = session.load_conversation(path)
    load_s = time.perf_counter() - start
    result = generate(session, [*ids, *json.loads(new)])
    json.dump({"load_s": load_s, "ids": ids, **asdict(result)}, sys.stdout)


def from_disk(model: str, random: Random) -> tuple[list[int], dict[str, Any], dict[str, float]]:
    """The prompt of a next turn, what it gave in a new process, and figures of the file."""
    session = cabochon.load(model, kv_memory=KV_MEMORY)
    prompt, new = next_turn(session, random)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conversation"
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            saved = session.save_conversation(path, prompt[:-new])
            seconds.append(time.perf_counter() - start)
        again = in_new_process(model, path, prompt[-new:])
    if again["ids"] != prompt[:-new]:
        raise SystemExit("the loaded ids are not those saved")
    figures = {
        "bytes": saved.nbytes,
        "save_s": round(seconds[0], 3),
        "save_again_s": round(seconds[1], 3),
        "load_s": round(again["load_s"], 3),
    }
    return prompt, again, figures


def compared(model: str, name: str, prompt: list[int], new: int, again: dict[str, Any]) -> dict[str, Any]:
    """Figures of a generation that reused something, beside the same one without reuse."""
    without = cabochon.load(model, prefix_cache=False)
    fresh = [generate(without, prompt) for _ in range(ROUNDS)]
    run = len(prompt) - again["reused_tokens"]
    first = again["timings"]["first_token_s"]
    seconds = sorted(result.timings.first_token_s or 0.0 for result in fresh)[ROUNDS // 2]
    bits = tuple(again["token_ids"]), tuple(again["logprobs"])
    same = all((result.token_ids, result.logprobs) == bits for result in fresh)
    print(
        f"{name}: {len(prompt):,} tokens, {new} of them new, {run} run; first token after {first:.3f} s, without reuse"
        f" {seconds:.3f} s, ratio {seconds / first:.1f}; bits {'equal' if same else 'DIFFER'}"
    )
    return {
        "prompt": len(prompt),
        "new": new,
        "run": run,
        "first_token_ratio": round(seconds / first, 1),
        "same_bits": same,
    }


def main() -> int:
    """Runs all; 0 if as little was run as should be and every bit is the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--go-on", nargs=2, metavar=("FILE", "IDS"), help="what case 3 runs in a new process")
    options = parser.parse_args()
    if options.go_on:
        go_on(options.model, *options.go_on)
        return 0
    report: dict[str, Any] = {}
    for name, case, new in (("next turn", next_turn, TURN), ("shared beginning", shared_beginning, QUESTION)):
        with_reuse = cabochon.load(options.model, kv_memory=KV_MEMORY)
        prompt, _ = case(with_reuse, Random(7))
        report[name] = compared(options.model, name, prompt, new, asdict(generate(with_reuse, prompt)))
    prompt, again, figures = from_disk(options.model, Random(7))
    report["from disk"] = {**compared(options.model, "from disk", prompt, TURN, again), **figures}
    print(
        f"from disk: file {figures['bytes'] / 2**20:.1f} MiB, saved in {figures['save_s']:.2f} s (again in"
        f" {figures['save_again_s']:.2f} s), loaded in {figures['load_s']:.2f} s; the first time of each reads the"
        " model's file once more"
    )
    good = all(entry["same_bits"] and entry["run"] <= entry["new"] + PAGE for entry in report.values())
    if options.save:
        options.save.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
