"""A trace as long and as deep as they come, made up: for what must stay small and quick. Nothing in it was measured."""

from __future__ import annotations

import numpy as np

from cabochon.trace.trace import (
    VERSION,
    Candidates,
    ChoiceMade,
    Cost,
    End,
    Header,
    LayerGroup,
    ModelFacts,
    Prompt,
    Runs,
    SequenceEnd,
    Share,
    StageLeft,
    Step,
    Trace,
)

PAGE = 32
PROMPT = 48
WINDOW = 1024
VOCAB = 262_144
LISTED = 50
KEPT = 12
NAMED = 12_000
"""Different ids among the candidates: a text's own words come again and again."""


def long_trace(steps: int = 2000, layers: int = 62) -> Trace:
    """One text of so many steps on so many layers, of which every sixth is global; 50 candidates at each step."""
    random = np.random.default_rng(7)
    wide = tuple(range(5, layers, 6))
    groups = (
        LayerGroup(WINDOW, tuple(sorted({*range(layers)} - {*wide})), 16, 128, 8192),
        LayerGroup(None, wide, 16, 128, 8192),
    )
    every = [_step(number, random) for number in range(steps)]
    ids = tuple(choice.token for step in every for share in step.shares for choice in share.choices)
    pieces = {i: f" word{i}" for i in {*range(NAMED)}}
    model = ModelFacts("Made up", "gemma3", None, layers, 5376, 32, VOCAB, None, None, groups, "bf16", "native")
    prompt = Prompt(tuple(range(2, 2 + PROMPT)), {"temperature": 0.8, "top_k": 64, "top_p": 0.95}, 1, steps)
    cost = Cost(PROMPT + steps - 1, 10**9, 10**12, 10**9)
    end = End((SequenceEnd(ids, "", "length"),), cost, None, Cost(10**6, 10**11, 10**14, 10**11), 100.0)
    return Trace(Header(VERSION, model, PAGE, (prompt,), pieces), tuple(every), (), end)


def _step(number: int, random: np.random.Generator) -> Step:
    rows, first = (PROMPT, 0) if number == 0 else (1, PROMPT + number - 1)
    last: Runs = ((first, 1 if rows > 1 else 0, rows),)
    share = Share(
        sequence=0,
        phase="prefill" if number == 0 else "decode",
        ids=tuple(range(2, 2 + PROMPT)) if number == 0 else (int(random.integers(NAMED)),),
        guesses=0,
        positions=last,
        slots=(last, last),
        first_key=(((max(0, first - WINDOW + 1), 0, rows),), ((0, 0, rows),)),
        last_key=(last, last),
        held_from=(max(0, first - WINDOW + 1) // PAGE * PAGE, 0),
        choices=(_choice(first + rows, random),),
    )
    cost = Cost(rows, 1000 * rows * (first + rows), 10**8, 10**6 * rows)
    return Step(number, (share,), cost, round(float(random.uniform(0.02, 0.05)), 6), {})


def _choice(position: int, random: np.random.Generator) -> ChoiceMade:
    ids = random.permutation(NAMED)[:LISTED]
    logits = np.sort(random.normal(10, 3, LISTED).astype(np.float32))[::-1]
    weights = np.exp((logits - logits[0]) / np.float32(0.8))
    probabilities = weights[:KEPT] / weights[:KEPT].sum()
    place = int(random.integers(KEPT))
    before = float(probabilities[:place].sum())
    return ChoiceMade(
        position=position,
        token=int(ids[place]),
        text=f" word{ids[place]}",
        logprob=_number(np.log(probabilities[place])),
        margin=_number(logits[0] - logits[1]),
        allowed=VOCAB - 100,
        stages=(StageLeft("temperature", VOCAB, 1.0), StageLeft("top_k", 64, 0.97), StageLeft("top_p", KEPT, 0.93)),
        candidates=Candidates(
            ids=tuple(ids.tolist()),
            raw=None,
            logits=tuple(map(_number, logits)),
            adjusted=None,
            scaled=tuple(map(_number, (logits - logits[0]) / np.float32(0.8))),
            removed=("",) * KEPT + ("top_p",) * (LISTED - KEPT),
            probabilities=(*map(_number, probabilities), *(0.0 for _ in range(LISTED - KEPT))),
        ),
        draw=before + float(probabilities[place]) / 2,
        span=(before, before + float(probabilities[place])),
        ends=None,
    )


def _number(value: np.float32) -> float:
    return float(str(np.float32(value)))
