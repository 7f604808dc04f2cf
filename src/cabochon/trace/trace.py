"""A recorded run, as data: what went into every step, what it stored, read and chose.

A trace is whole without a model: nothing here imports one. Integers that a step has one of for each row travel as runs
(``Runs``), so a step of a thousand rows is as short as one of a single row. Positions, slots and keys are those of
``docs/notation.md``; a slot is numbered ``page id * PAGE + slot in the page``.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec.structs import astuple

VERSION = 1
"""Of the file format. A reader refuses every other."""

Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
"""A whole number of positions, at least one."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""A whole number that is not negative: an id, a position, how many there are of something."""

Runs: TypeAlias = tuple[tuple[int, int, int], ...]
"""Integers as arithmetic runs: (first, difference, count) is first, first + difference, ...; count of them."""

Verdict: TypeAlias = Literal["identical bits", "rounding", "broken", "not reached"]


NOT_ALLOWED = "not allowed"
"""Why an id is no candidate that the tokenizer, a constraint, bad words or ``min_tokens`` forbid."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all parts of a trace have in common: they do not change, and know no fields but their own."""


class LayerGroup(Part, frozen=True):
    """Layers that share pages: one shape of keys and values, and one window."""

    window: Size | None
    """Keys that a query sees, itself included; None for all (global layers)."""
    layers: tuple[Count, ...]
    kv_heads: Count
    """G"""
    head_dim: Count
    """E"""
    position_bytes: Count
    """Of one position's keys and values in one of the layers."""


class ModelFacts(Part, frozen=True):
    """The model that ran."""

    name: str
    architecture: str
    fingerprint: str | None
    """SHA-256 of all that its keys and values depend on; None if it was not asked for."""
    layers: Count
    """L"""
    hidden: Count
    """D"""
    heads: Count
    """H"""
    vocab: Count
    """V"""
    final_softcap: float | None
    attn_softcap: float | None
    groups: tuple[LayerGroup, ...]
    """[P]"""
    kv_type: str
    backend: str
    """``native`` or ``torch``."""


class Prompt(Part, frozen=True):
    """One sequence as it was given."""

    ids: tuple[Count, ...]
    sampling: dict[str, int | float | str | bool]
    """Parameters as in ``docs/sampling.md``, those that differ from what changes nothing."""
    seed: int
    max_tokens: Count


class Header(Part, frozen=True, tag_field="line", tag="header"):
    """What a trace begins with."""

    cabochon_trace: int
    """``VERSION``"""
    model: ModelFacts
    page: Size
    """Positions a page holds."""
    prompts: tuple[Prompt, ...]
    """One for each sequence."""
    pieces: dict[int, str]
    """Text of the ids of the prompts, each by itself; a byte that is no text by itself as ``<0xE2>``."""


class Cost(Part, frozen=True):
    """Counts, of a step or of many."""

    tokens: Count
    """Rows run."""
    pairs: Count
    """Query-key pairs: of one head's query in one row and a key that it sees, over all layers."""
    bytes_read: Count
    """Of keys and values that rows see, each row for itself, over all layers."""
    bytes_written: Count

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(mine - theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


NOTHING = Cost(0, 0, 0, 0)


class StageLeft(Part, frozen=True):
    """What one part of sampling left of the candidates."""

    name: str
    """``temperature``, ``top_k``, ``typical``, ``top_p``, ``min_p``, ``xtc`` or ``greedy``."""
    kept: Count
    """How many."""
    mass: float | None
    """Their share of the whole vocabulary's probability, before temperature; None where not all were looked at."""


class Candidates(Part, frozen=True):
    """The ids with the largest logits, and the chosen one if it is not among them: columns of a table, [n] each."""

    ids: tuple[Count, ...]
    raw: tuple[float, ...] | None
    """Logits before the final soft cap; None where the model has no cap (they are ``logits``), or does not tell."""
    logits: tuple[float, ...]
    """As the model gives them, after the soft cap."""
    adjusted: tuple[float, ...] | None
    """After bias and penalties; None where none is asked for."""
    scaled: tuple[float, ...] | None
    """Less the best one's, divided by the temperature; None where the choice is greedy."""
    removed: tuple[str, ...]
    """The part of sampling that removed it; empty where none did, ``not allowed`` for what could not be chosen."""
    probabilities: tuple[float, ...]
    """Of being drawn: 0 for what was removed, and the sum over all that are left (not only those here) is 1."""


class ChoiceMade(Part, frozen=True):
    """How one token was chosen."""

    position: Count
    """Where the token stands: one after the row whose logits it was chosen from."""
    token: Count
    text: str
    """What it adds to the text; empty for a stop id, and while a character is incomplete."""
    logprob: float
    """Of the model's own distribution, after the soft cap."""
    margin: float
    """How far the largest logit was above the next."""
    allowed: Count
    """Ids that might be chosen at all, of V."""
    stages: tuple[StageLeft, ...]
    candidates: Candidates
    draw: float | None
    """The random number in (0, 1); None where the choice is greedy."""
    span: tuple[float, float] | None
    """The chosen one's part of the cumulative probability, in which ``draw`` lies."""
    ends: str | None
    """The finish reason if the sequence ends with it: ``stop`` (it is a stop id, and no part of the text), ..."""


class AttentionRow(Part, frozen=True):
    """How the row that a token was chosen from looked back, in one layer."""

    layer: Count
    position: Count
    """Of the row."""
    first_key: Count
    weights: tuple[tuple[float, ...], ...]
    """[H, keys] of each query head; each sums to 1."""


class Share(Part, frozen=True):
    """One sequence's rows of a step."""

    sequence: Count
    """Index into the prompts."""
    phase: Literal["prefill", "decode"]
    """``prefill`` as long as ids of the prompt are run."""
    ids: tuple[Count, ...]
    """[rows] that go in."""
    guesses: Count
    """How many of the last of them are guesses."""
    positions: Runs
    """[rows]"""
    slots: tuple[Runs, ...]
    """[P] of [rows]: where keys and values are written."""
    first_key: tuple[Runs, ...]
    """[P] of [rows]: the first key that a row sees."""
    last_key: tuple[Runs, ...]
    """[P] of [rows]: the last one, inclusive."""
    held_from: tuple[Count, ...]
    """[P] the first key whose page was held when the step ran; those before it had been let go."""
    choices: tuple[ChoiceMade, ...]
    """None in the middle of a prompt; several where guesses were right."""
    attention: tuple[AttentionRow, ...] = ()


class Step(Part, frozen=True, tag_field="line", tag="step"):
    """One run of the model."""

    step: Count
    """Counted from 0."""
    shares: tuple[Share, ...]
    """In the order of their rows."""
    cost: Cost
    """Counted from the step's integers."""
    seconds: float
    """Of the whole step."""
    pieces: dict[int, str]
    """As in the header, of ids that no line before has named."""


class FirstDifference(Part, frozen=True):
    """Where keys or values first differed."""

    layer: Count
    what: str
    position: Count


class VariantRun(Part, frozen=True, tag_field="line", tag="variant"):
    """Another way to make the steps of the first sequence, held against the cached one."""

    variant: str
    about: str
    equal: bool
    """Whether it must give what the cached loop gives."""
    verdict: Verdict
    as_expected: bool
    same_text: bool
    first_step: Count | None
    """First turn whose logits differed."""
    first_token: Count | None
    """First turn that would have chosen another token."""
    max_abs_difference: float | None
    """Of two logits; None where they are no numbers."""
    margin: float | None
    difference: FirstDifference | None
    cost: Cost
    seconds: float
    steps: tuple[Step, ...]
    """Turn by turn."""
    pieces: dict[int, str]


class SequenceEnd(Part, frozen=True):
    """What became of a sequence."""

    token_ids: tuple[Count, ...]
    text: str
    """The reply."""
    finish_reason: str


class End(Part, frozen=True, tag_field="line", tag="end"):
    """What a trace ends with."""

    sequences: tuple[SequenceEnd, ...]
    cost: Cost
    """Of all steps."""
    counted: Cost | None
    """The same, counted by the native core while it ran; None on another backend."""
    recomputing: Cost
    """Of running each text from its beginning for every token."""
    seconds: float


class Trace(Part, frozen=True):
    """A whole recorded run."""

    header: Header
    steps: tuple[Step, ...]
    variants: tuple[VariantRun, ...]
    end: End

    @property
    def pieces(self) -> dict[int, str]:
        """Text of every id that the trace names."""
        every = dict(self.header.pieces)
        for step in self.steps:
            every.update(step.pieces)
        for variant in self.variants:
            every.update(variant.pieces)
        return every
