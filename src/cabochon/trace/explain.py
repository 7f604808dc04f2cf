"""A trace in words, for a terminal: what went in, what was stored and read, how the token was chosen, what it cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from cabochon.errors import UsageError
from cabochon.trace.check import faults
from cabochon.trace.runs import values_of
from cabochon.trace.trace import AttentionRow, ChoiceMade, Cost, LayerGroup, Runs, Share, Step, Trace

SHOWN = 8
"""Ids and texts of a prompt, at most, in a line."""


class Explainer:
    """Lines about one trace. Texts are quoted, and what a terminal would obey is spelled out."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._pieces = trace.pieces
        self._several = len(trace.header.prompts) > 1
        self._following = _following(trace.steps)
        self._ids = [
            (*prompt.ids, *end.token_ids) for prompt, end in zip(trace.header.prompts, trace.end.sequences, strict=True)
        ]

    def head(self) -> Iterator[str]:
        """The model and what was asked for."""
        model = self._trace.header.model
        kinds = ", ".join(f"{len(group.layers)} {_kind(group)}" for group in model.groups)
        yield f"{model.name or model.architecture}: {model.layers} layers ({kinds}); keys and values in {model.kv_type}"
        for number, prompt in enumerate(self._trace.header.prompts):
            name = f"sequence {number}" if self._several else "prompt"
            how = "greedy" if not prompt.sampling.get("temperature") else f"seed {prompt.seed}"
            yield f"{name}: {_ids(len(prompt.ids))}, positions 0-{len(prompt.ids) - 1}; {how}"

    def overview(self) -> Iterator[str]:
        """Two lines for each sequence's share of each step: what went in and where, and how a token was chosen."""
        kinds = " | ".join(f"{_kind(kind)} layers" for _, kind in self._groups())
        yield f"Slots are page:slot, keys are the positions read; {kinds}."
        rows = [self._cells(step, share) for step in self._trace.steps for share in step.shares]
        widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]) - 1)]
        shares = (share for step in self._trace.steps for share in step.shares)
        for row, share in zip(rows, shares, strict=True):
            *cells, last = (cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True))
            yield "  ".join((*cells, last))
            for choice in share.choices:
                yield f"      {self._funnel(choice)}"

    def details(self, number: int) -> Iterator[str]:
        """All that is known of a step. Raises ``UsageError`` if there is none of that number."""
        steps = self._trace.steps
        if number >= len(steps):
            raise UsageError(f"there is no step {number}; the run has the steps 0 to {len(steps) - 1}")
        step = steps[number]
        yield f"Step {number}: {_ids(step.cost.tokens)} in {step.seconds * 1000:.1f} ms"
        for share in step.shares:
            yield from self._share(step, share)
        cost = step.cost
        yield (
            f"  cost     {cost.pairs:,} query-key pairs; {_bytes(cost.bytes_read)} of keys and values read,"
            f" {_bytes(cost.bytes_written)} written"
        )

    def summary(self) -> Iterator[str]:
        """Texts, costs beside those of recomputing, and whether the invariants hold."""
        end = self._trace.end
        for number, sequence in enumerate(end.sequences):
            name = f"Text {number}" if self._several else "Text"
            ended = f"{len(sequence.token_ids)} tokens, ended by {sequence.finish_reason}"
            yield f"{name}: {_quoted(sequence.text)}; {ended}"
        run, again = end.cost, end.recomputing
        yield "This run, and running the whole text again for every token:"
        yield _beside("tokens run", run.tokens, again.tokens, "{:,}".format)
        yield _beside("query-key pairs", run.pairs, again.pairs, "{:,}".format)
        yield _beside("K/V read", run.bytes_read, again.bytes_read, _bytes)
        yield _beside("K/V written", run.bytes_written, again.bytes_written, _bytes)
        if end.counted is not None:
            same = "the same" if end.counted == run else f"SOMETHING ELSE: {_counts(end.counted)}"
            yield f"The native core, which counts while it runs, counted {same}."
        yield self._sound()
        for variant in self._trace.variants:
            yield f"{variant.variant}: {variant.verdict}" + ("" if variant.as_expected else ", NOT AS IT SHOULD BE")

    def _sound(self) -> str:
        guesses = any(share.guesses for step in self._trace.steps for share in step.shares)
        if guesses:
            return "Guessed tokens were run, so some positions were written more than once."
        wrong = list(faults(self._trace))
        if wrong:
            return f"NOT SOUND: {wrong[0]}" + (f", and {len(wrong) - 1} more." if len(wrong) > 1 else ".")
        return "Every position was written once in every layer, and every row read exactly the keys of its window."

    def _cells(self, step: Step, share: Share) -> tuple[str, ...]:
        """Columns of the overview."""
        slots = " | ".join(self._pages(share.slots[g]) for g, _ in self._groups())
        keys = " | ".join(_span(share.first_key[g], share.last_key[g]) for g, _ in self._groups())
        return (
            f"{step.step:>4}",
            *((f"sequence {share.sequence}",) if self._several else ()),
            share.phase,
            f"position {_range(share.positions)}",
            f"slots {slots}",
            f"keys {keys}",
            f"{self._in(share)}{self._let_go(step, share)}",
        )

    def _share(self, step: Step, share: Share) -> Iterator[str]:
        if self._several:
            yield f"sequence {share.sequence}"
        yield f"  phase    {share.phase}, {len(share.ids)} rows" + (
            f", {share.guesses} of them guesses" if share.guesses else ""
        )
        yield f"  ids      {', '.join(map(str, share.ids[:SHOWN]))}{_more(len(share.ids))}: {self._in(share)}"
        yield f"  position {_range(share.positions)}"
        for g, kind in self._groups():
            pages = self._pages(share.slots[g])
            yield f"  slot     {_kind(kind)} layers: {pages}"
        for g, kind in self._groups():
            yield f"  mask row {_kind(kind)} layers: {_mask(share.first_key[g], share.last_key[g])}"
        gone = self._let_go(step, share)
        yield f"  let go   {gone.removeprefix('; lets go ') if gone else 'nothing'}"
        for row in share.attention:
            yield from self._attention(share.sequence, row)
        for choice in share.choices:
            yield f"  choice   {self._funnel(choice)}"
            yield from self._candidates(choice)

    def _groups(self) -> Iterable[tuple[int, LayerGroup]]:
        return enumerate(self._trace.header.model.groups)

    def _in(self, share: Share) -> str:
        texts = " ".join(self._piece(i) for i in share.ids[:SHOWN])
        return f"{texts}{_more(len(share.ids))}"

    def _pages(self, slots: Runs) -> str:
        """Page and slot of the first and last of them."""
        page = self._trace.header.page
        values = values_of(slots)
        first, last = (f"{slot // page}:{slot % page}" for slot in (int(values[0]), int(values[-1])))
        return first if len(values) == 1 else f"{first}-{last}"

    def _let_go(self, step: Step, share: Share) -> str:
        """What the next step of the sequence finds gone."""
        following = self._following.get((step.step, share.sequence))
        gone = [
            f"keys {before}-{now - 1} of the {_kind(kind)} layers"
            for (g, kind) in self._groups()
            if following is not None and (now := following.held_from[g]) > (before := share.held_from[g])
        ]
        return f"; lets go {', '.join(gone)}" if gone else ""

    def _funnel(self, choice: ChoiceMade) -> str:
        parts = [f"{self._trace.header.model.vocab:,} ids"]
        if choice.allowed < self._trace.header.model.vocab:
            parts.append(f"allowed {choice.allowed:,}")
        for stage in choice.stages:
            if stage.name == "temperature":  # it removes nothing
                continue
            mass = "" if stage.mass is None or stage.mass == 1 else f" ({stage.mass:.1%})"
            parts.append(f"{stage.name} {stage.kept:,}{mass}")
        place = choice.candidates.ids.index(choice.token)
        chosen = (
            f"{self._piece(choice.token)} ({choice.token}), probability {choice.candidates.probabilities[place]:.4f}"
        )
        how = "" if choice.draw is None else f"{choice.draw:.4f} falls on "
        end = "" if choice.ends is None else f"; ends: {choice.ends}"
        return f"{' > '.join(parts)} > {how}{chosen}{end}"

    def _candidates(self, choice: ChoiceMade) -> Iterator[str]:
        """A table of all that are listed; the chosen one is marked."""
        c = choice.candidates
        columns: list[tuple[str, Sequence[float] | None]] = [
            ("raw", c.raw),
            ("logit", c.logits),
            ("adjusted", c.adjusted),
            ("/temperature", c.scaled),
        ]
        kept = [(name, values) for name, values in columns if values is not None]
        yield "           " + "".join(f"{name:>13}" for name, _ in kept) + f"{'probability':>13}  {'left at':11}  token"
        for n, token in enumerate(c.ids):
            mark = "> " if token == choice.token else "  "
            values = "".join(f"{column[n]:13.4f}" for _, column in kept)
            probability = "" if c.removed[n] else f"{c.probabilities[n]:.4f}"
            yield f"         {mark}{values}{probability:>13}  {c.removed[n]:11}  {self._piece(token)} ({token})"

    def _attention(self, sequence: int, row: AttentionRow) -> Iterator[str]:
        """The keys that each head looks at most."""
        ids = dict(enumerate(self._ids[sequence]))
        for head, weights in enumerate(row.weights):
            best = sorted(range(len(weights)), key=lambda key: -weights[key])[:SHOWN]
            looks = ", ".join(
                f"{row.first_key + key} {self._piece(ids.get(row.first_key + key, -1))} {weights[key]:.3f}"
                for key in best
            )
            yield f"  layer {row.layer:<2} head {head} of position {row.position} looks at {looks}"

    def _piece(self, token_id: int) -> str:
        return _quoted(self._pieces.get(token_id, "?"))


def _following(steps: Sequence[Step]) -> dict[tuple[int, int], Share]:
    """By step and sequence: the sequence's share of its next step."""
    found: dict[tuple[int, int], Share] = {}
    before: dict[int, int] = {}
    for step in steps:
        for share in step.shares:
            if share.sequence in before:
                found[before[share.sequence], share.sequence] = share
            before[share.sequence] = step.step
    return found


def _kind(group: LayerGroup) -> str:
    return "global" if group.window is None else f"sliding (window {group.window})"


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in quoted)


def _range(runs: Runs) -> str:
    values = values_of(runs)
    return _interval(int(values.min()), int(values.max()))


def _span(first: Runs, last: Runs) -> str:
    """From the first key that any of the rows reads to the last."""
    return _interval(int(values_of(first).min()), int(values_of(last).max()))


def _mask(first: Runs, last: Runs) -> str:
    firsts, lasts = values_of(first), values_of(last)
    if len(firsts) == 1:
        return f"keys {_interval(int(firsts[0]), int(lasts[0]))}, {int(lasts[0] - firsts[0]) + 1} of them"
    rows = [f"row {n} keys {_interval(int(firsts[n]), int(lasts[n]))}" for n in (0, len(firsts) - 1)]
    return " ... ".join(rows)


def _interval(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _ids(n: int) -> str:
    return "1 id" if n == 1 else f"{n:,} ids"


def _more(n: int) -> str:
    return f" ... ({n} in all)" if n > SHOWN else ""


def _beside(what: str, run: int, again: int, shown: Callable[[int], str]) -> str:
    times = f"{again / run:8,.1f} times" if run else ""
    return f"  {what:15}  {shown(run):>14}  {shown(again):>14}  {times}".rstrip()


def _bytes(n: int) -> str:
    return f"{n / 2**20:,.1f} MiB" if n >= 2**20 else f"{n / 2**10:,.1f} KiB"


def _counts(cost: Cost) -> str:
    return f"{cost.tokens:,} tokens, {cost.pairs:,} pairs, {cost.bytes_read:,} and {cost.bytes_written:,} bytes"
