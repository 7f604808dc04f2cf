"""Twice as many requests as the engine can take, for minutes, on the real model; every answer is compared.

    python benchmarks/soak.py [--minutes 20] [--model demo] [--texts 80] [--threads N] [--seed 1]

First each of ``--texts`` requests runs alone, from empty pages and without reuse: what it must give. Many of them begin
alike, go on from another's reply, or are another reply to the same prompt; they are short and long, greedy and random,
with penalties or without, scored or not. Then threads submit them at random, many as forks of others, twice as fast as
they are done, to an engine with a bounded line, guesses, and too few pages for those it runs. Some are cancelled at
random moments; one thread waits for its own as a stream does.

Printed each minute: what happened so far. It fails (1) if a token or a log-probability is another than alone, if a
request fails, if memory grows by more than 2 % after the first quarter, if a page is not back at the end, or if nothing
was refused, forked, reused, paused, evicted or cancelled.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import cabochon
from cabochon.engine.engine import Engine
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.errors import QueueFullError
from cabochon.kvcache.pages import PagePool
from cabochon.kvcache.prefix import PrefixCache
from cabochon.session import Session
from cabochon.testing.steps import poison

CONTEXT, CHUNK = 1024, 128
RUNNING, WAITING = 8, 8
PAGES = 36
"""Of each group: one longest text and a bit, where eight run."""

CHECKPOINT_PAGES = 8
SPECULATE = 8
SUBMITTERS = 3
SLOWEST = 0.5
"""Requests a second that are submitted at least."""

GROWTH = 0.02
"""Of the memory at the end of the first quarter, which is for warming up."""

PHRASES = (
    "The ship left the harbour before dawn and nobody saw it go. ",
    "Q: What is the capital of France? A: Paris. ",
    "Take two eggs, a cup of flour and a pinch of salt. ",
    "for i in range(10):\n    print(i, i * i)\n",
    "In the north it rains; in the south it does not. ",
    "Dear Sir or Madam, I am writing to you about the bill of last month. ",
    "| name | value |\n| --- | --- |\n| one | 1 |\n",
    "Er sagte, dass er morgen kommen werde, und ging. ",
)


@dataclass(frozen=True)
class Text:
    """A request and what it gives alone."""

    request: Request
    alone: RequestState


@dataclass
class Load:
    """What submitters and the engine's thread share."""

    engine: Engine
    texts: list[Text]
    rate: float
    """Requests submitted a second."""
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: list[tuple[Text, RequestState]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def submit(self, draw: Random) -> RequestState | None:
        """Puts one of the texts in line, half of them as forks of others; None if the line is full."""
        text = draw.choice(self.texts)
        try:
            with self.lock:
                begun = [state for other, state in self.open if other.request.prompt[:16] == text.request.prompt[:16]]
                origin = draw.choice(begun) if begun and draw.random() < 0.5 else None
                state = self.engine.submit(text.request, origin)
                self.counts.update(forks=origin is not None)
                self.open.append((text, state))
        except QueueFullError:
            self.count(refused=1)
            return None
        return state

    def count(self, **events: int) -> None:
        with self.lock:
            self.counts.update(events)

    def check(self) -> None:
        """Compares what has ended since the last call with what it gives alone."""
        with self.lock:
            ended = [(text, state) for text, state in self.open if state.finish_reason is not None]
            self.open = [(text, state) for text, state in self.open if state.finish_reason is None]
        for text, state in ended:
            cancelled = state.finish_reason == "cancelled"
            pairs = ((state.tokens, text.alone.tokens), (state.scores, text.alone.scores))
            same = all(mine == (right[: len(mine)] if cancelled else right) for mine, right in pairs)
            if not same or not (cancelled or state.finish_reason == text.alone.finish_reason):
                self.faults.append(_fault(state, text.alone))
            self.count(
                done=1,
                cancelled=cancelled,
                tokens=len(state.tokens),
                decoded=max(len(state.tokens) - 1, 0),
                decode_steps=state.work.decode_steps,
                reused=state.reused,
            )


def _fault(state: RequestState, alone: RequestState) -> str:
    pairs = enumerate(zip(state.tokens, alone.tokens, strict=False))
    place = next((i for i, (mine, right) in pairs if mine != right), min(len(state.tokens), len(alone.tokens)))
    return f"request {state.number}, token {place}: not as alone; ended with {state.finish_reason} ({state.error})"


def drawn_request(session: Session, draw: Random, beginnings: list[list[int]], earlier: list[Text]) -> Request:
    """One request: new, one that begins as others do, one that goes on from a reply, or another reply to a prompt."""
    kind = draw.random()
    if kind < 0.1 and earlier:
        request = draw.choice(earlier).request
        return replace(request, params=replace(request.params, choice=request.params.choice + 1))
    if kind < 0.4 and earlier:
        ids = list(draw.choice(earlier).alone.ids)
    elif kind < 0.75:
        ids = list(draw.choice(beginnings))
    else:
        ids = [2]
    own = "".join(draw.choices(PHRASES, k=draw.choice([1, 2, 5, 30 if draw.random() < 0.2 else 3])))
    ids += session.tokenize(own, bos=False)
    request = session.request(
        ids[: CONTEXT - 60],
        max_tokens=draw.choice([4, 16, 32, 48]),
        ignore_eos=draw.random() < 0.5,
        logprobs=draw.choice([0, 0, 2]),
        temperature=draw.choice([0.0, 0.0, 0.8, 1.5]),
        top_k=draw.choice([0, 20, 64]),
        top_p=draw.choice([1.0, 0.9]),
        repetition_penalty=draw.choice([1.0, 1.0, 1.0, 1.2]),
        seed=draw.getrandbits(64),
    )
    return replace(request, prompt_logprobs=draw.choice([None] * 5 + [0]))


def run_alone(session: Session, draw: Random, count: int) -> list[Text]:
    """The requests, and what each of them gives alone."""
    beginnings = [session.tokenize("".join(draw.choices(PHRASES, k=k))) for k in (6, 12, 20)]
    engine = session.new_engine()
    texts = list[Text]()
    for _ in range(count):
        request = drawn_request(session, draw, beginnings, texts)
        state = engine.submit(request)
        while not engine.idle:
            engine.step()
        texts.append(Text(state.request, state))
    return texts


def submit_at_random(load: Load, draw: Random) -> None:
    """Twice the requests that are done, this thread's share of them; every sixth is cancelled some time later."""
    leaving: list[tuple[float, RequestState]] = []
    while not load.stopped.wait(draw.expovariate(load.rate / SUBMITTERS)):
        state = load.submit(draw)
        if state is not None and draw.random() < 1 / 6:
            leaving.append((time.monotonic() + draw.uniform(0, 2), state))
        for moment, left in leaving:
            if moment < time.monotonic():
                load.engine.cancel(left)
        leaving = [(moment, left) for moment, left in leaving if moment >= time.monotonic()]


def read_one_by_one(load: Load, draw: Random) -> None:
    """A thread that runs steps itself until its request has ended, token by token."""
    while not load.stopped.wait(0.01):
        state = load.submit(draw)
        while state is not None and state.finish_reason is None:
            load.engine.advance(state, len(state.tokens))


def _guarded(target: Callable[[Load, Random], None], load: Load, draw: Random) -> None:
    """Runs a thread's work; what it raises is a fault."""
    try:
        target(load, draw)
    except Exception as error:
        load.faults.append(f"{target.__name__}: {error!r}")


def memory() -> float:
    """MiB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def run(load: Load, seconds: float, seed: int) -> list[tuple[float, float]]:
    """Runs the engine under load for so long, then to the end of what is open; (second, MiB) samples."""
    threads = [
        threading.Thread(target=_guarded, args=(target, load, Random(seed + n)), daemon=True)
        for n, target in enumerate([*[submit_at_random] * SUBMITTERS, read_one_by_one])
    ]
    for thread in threads:
        thread.start()
    samples = list[tuple[float, float]]()
    recent = deque([(0, 0)], maxlen=10)
    start = told = sampled = time.monotonic()
    while (now := time.monotonic()) < start + seconds and not load.faults:
        load.engine.step()
        load.check()
        if now > sampled + 1:
            sampled = now
            samples.append((now - start, memory()))
            recent.append((load.counts["done"], load.counts["refused"]))
            done, refused = recent[-1][0] - recent[0][0], recent[-1][1] - recent[0][1]
            load.rate = load.rate * 1.1 if refused < done else max(2 * done / len(recent), SLOWEST)
        if now > told + 60:
            told = now
            print(f"{(now - start) / 60:5.1f} min  {_summary(load)}  {samples[-1][1]:.0f} MiB", flush=True)
    load.stopped.set()
    while any(thread.is_alive() for thread in threads) or not load.engine.idle:
        load.engine.step()
    load.check()
    print(f"  the end  {_summary(load)}  {memory():.0f} MiB", flush=True)
    return samples


def _summary(load: Load) -> str:
    counts, engine = load.counts, load.engine
    prefixes = engine.prefixes.counters if engine.prefixes is not None else None
    words = [f"{counts[name]:,} {name}" for name in ("done", "cancelled", "refused", "forks", "tokens", "reused")]
    words.append(f"{counts['decoded'] / max(counts['decode_steps'], 1):.2f} tokens a step of a text")
    words += [f"{engine.pauses:,} pauses", f"{prefixes.evictions if prefixes else 0:,} evictions"]
    return ", ".join([*words, f"{len(load.faults)} wrong"])


def check_end(load: Load, pools: list[PagePool], samples: list[tuple[float, float]]) -> None:
    """Adds what is wrong with pages, memory and the load itself to the faults."""
    engine = load.engine
    try:
        engine.check_integrity()
    except AssertionError as error:
        load.faults.append(f"the engine is not consistent: {error}")
    if load.open or not engine.idle or any(pool.free != pool.pages for pool in pools):
        load.faults.append(f"not all is back: {[(pool.free, pool.pages) for pool in pools]}, {len(load.open)} open")
    if load.faults:
        return
    happened = {**load.counts, "pauses": engine.pauses}
    if engine.prefixes is not None:
        happened["evictions"] = engine.prefixes.counters.evictions
    for event in ("done", "cancelled", "refused", "forks", "reused", "pauses", "evictions"):
        if not happened.get(event):
            load.faults.append(f"nothing to see: {event} is 0")
    after = samples[len(samples) // 4 :]
    if len(after) < 8:
        load.faults.append("too short for a word on memory")
        return
    base = statistics.median(size for _, size in after[: len(after) // 4])
    growth = max(size for _, size in after) / base - 1
    slope = statistics.linear_regression(*zip(*after, strict=True)).slope * 60
    print(f"memory after the first quarter: {base:.0f} MiB, {growth:+.2%} at most, {slope:+.2f} MiB a minute")
    if growth > GROWTH:
        load.faults.append(f"memory grew by {growth:.1%}")


def main() -> int:
    """Runs it; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--texts", type=int, default=80)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    session = cabochon.load(options.model, context=CONTEXT, chunk=CHUNK, max_running=4, threads=options.threads)
    store = session.model.store
    start = time.monotonic()
    texts = run_alone(session, Random(options.seed), options.texts)
    seconds = time.monotonic() - start
    rows = sum(len(text.request.prompt) for text in texts)
    tokens = sum(len(text.alone.tokens) for text in texts)
    print(f"{len(texts)} texts alone: {rows:,} ids of prompts, {tokens:,} tokens, {seconds:.0f} s", flush=True)
    poison(store)
    pools = [PagePool(PAGES) for _ in store.pages]
    engine = Engine(
        session.model,
        pools,
        Limits(CONTEXT, session.limits.vocab, max_waiting=WAITING),
        chunk=CHUNK,
        max_running=RUNNING,
        prefixes=PrefixCache(store.layout.groups, pools, session.name, CHECKPOINT_PAGES),
        speculate=SPECULATE,
    )
    load = Load(engine, texts, rate=2 * len(texts) / seconds)
    samples = run(load, 60 * options.minutes, options.seed)
    check_end(load, pools, samples)
    for fault in load.faults:
        print(f"FAULT: {fault}")
    print("soak: " + ("FAILED" if load.faults else f"all right, {load.counts['tokens']:,} tokens as alone"))
    return 1 if load.faults else 0


if __name__ == "__main__":
    sys.exit(main())
