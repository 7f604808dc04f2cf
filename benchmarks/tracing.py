"""What tracing costs: off, where nothing is told, and on, where every step is written down.

    python benchmarks/tracing.py [--tokens 128] [--rounds 15] [--threads 2] [--save FILE]

One model, and three engines over it: one without any place for an observer (a copy of the engine's step without it),
the engine as it is with nobody watching, and the same with a recorder. Each round runs one text in each of them, in
turns and in changing order, and takes tokens per second from the first chosen token on. Printed are medians, and the
medians of the ratios taken round by round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import cabochon
from cabochon.engine.engine import Engine
from cabochon.engine.request import Request
from cabochon.events import RequestEvent, StepPlan
from cabochon.trace.record import recorder_of
from cabochon.trace.recorder import Recorded

LEAST = 0.97
"""Of the speed without any place for an observer."""

PROMPT = 64


class Blind(Engine):
    """An engine without a place for an observer."""

    def _run(self, plan: StepPlan) -> tuple[RequestEvent, ...]:
        if not plan.sequences:
            return ()
        start = time.perf_counter()
        step = self._build(plan)
        logits = self._model.run(step)
        chosen = self._choose(plan, logits)
        return self._commit(plan, chosen, time.perf_counter() - start)


def blind(session: cabochon.Session, request: Request) -> Engine:
    engine = session.new_engine()
    engine.__class__ = Blind
    return engine


def off(session: cabochon.Session, request: Request) -> Engine:
    return session.new_engine()


def on(session: cabochon.Session, request: Request) -> Engine:
    recorder = recorder_of(session)
    recorder.sequences[0] = Recorded(0, len(request.prompt), request.params.temperature)
    return session.new_engine(recorder)


WAYS: dict[str, Callable[[cabochon.Session, Request], Engine]] = {"no place": blind, "off": off, "on": on}


def rate(engine: Engine, request: Request) -> tuple[float, tuple[int, ...]]:
    """Tokens per second after the first, and the tokens."""
    state = engine.submit(request)
    engine.advance(state, 0)
    start = time.perf_counter()
    engine.advance(state, request.max_tokens)
    seconds = time.perf_counter() - start
    return (len(state.tokens) - 1) / seconds, tuple(token.token_id for token in state.tokens)


def main() -> int:
    """Runs the comparison and prints it; 0 if tracing that is off costs no more than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    session = cabochon.load(options.model, threads=options.threads, context=512, prefix_cache=False)
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(options.rounds + 1):
        draw = Random(turn)
        prompt = [2, *(draw.randrange(1000, 200_000) for _ in range(PROMPT - 1))]
        request = session.request(prompt, max_tokens=options.tokens, seed=turn, ignore_eos=True)
        texts = set()
        for name in sorted(WAYS, key=lambda name: Random(f"{turn} {name}").random()):
            speed, tokens = rate(WAYS[name](session, request), request)
            texts.add(tokens)
            if turn:  # the first round warms up
                rates[name].append(speed)
        if len(texts) != 1:
            raise SystemExit("tracing changes the text")
    report = {}
    for name, beside in (("off", "no place"), ("on", "off")):
        ratios = [a / b for a, b in zip(rates[name], rates[beside], strict=True)]
        report[name] = {
            "tokens_per_s": round(statistics.median(rates[name]), 1),
            "beside": beside,
            "ratio": round(statistics.median(ratios), 3),
            "lowest": round(min(ratios), 3),
            "highest": round(max(ratios), 3),
        }
        print(
            f"tracing {name}: {report[name]['tokens_per_s']} tokens/s, {report[name]['ratio']:.3f} of '{beside}'"
            f" ({min(ratios):.3f} to {max(ratios):.3f} in {options.rounds} rounds)"
        )
    if options.save is not None:
        options.save.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if statistics.median(a / b for a, b in zip(rates["off"], rates["no place"], strict=True)) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
