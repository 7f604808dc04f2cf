"""What must be true of a trace, whatever model ran: checked without one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cabochon.errors import TraceError
from cabochon.trace.runs import values_of
from cabochon.trace.trace import NOT_ALLOWED, ChoiceMade, Share, Step, Trace

_ROUNDED = 1e-4
"""Probabilities are binary32, and their sums in a file are of rounded ones."""


def replay(trace: Trace) -> tuple[str, ...]:
    """The text of each sequence, made again: what each step was given is what is known by then, and every choice is
    repeated from its candidates and its random number.

    Of a choice from more candidates than are listed only the share of the chosen one is known, not who comes before it.

    Raises ``TraceError`` where that gives another token or text than was written down.
    """
    texts, ids = [""] * len(trace.header.prompts), [list(prompt.ids) for prompt in trace.header.prompts]
    for step in trace.steps:
        for share in step.shares:
            known, given = ids[share.sequence], share.ids[: len(share.ids) - share.guesses]
            for position, token in zip(values_of(share.positions).tolist(), given, strict=False):
                if position >= len(known) or known[position] != token:
                    raise _not_replayed(step.step, f"was given token {token}, which is not that of position {position}")
            for choice in share.choices:
                _check_choice(choice, step.step, len(known))
                texts[share.sequence] += choice.text
                if choice.ends != "stop":
                    known.append(choice.token)
    for number, (end, text, known) in enumerate(zip(trace.end.sequences, texts, ids, strict=True)):
        if text != end.text or known[len(trace.header.prompts[number].ids) :] != list(end.token_ids):
            raise TraceError(f"the trace does not replay: text {number} is not what its steps chose; record it again")
    return tuple(texts)


def faults(trace: Trace) -> Iterator[str]:
    """What is not as it must be where no step is run twice and nothing is guessed: nothing, of a sound trace.

    - Over the run each position of a sequence is written once, in the order of positions; the last token's is not.
    - A row at position i reads the keys max(0, i - W + 1) ... i of a layer whose window is W, and all are still held.
    - A key stays where it was written, and no other sequence writes there while it is held.
    - Of a prompt of P ids and N choices P + N - 1 rows are run.
    """
    written = _written(trace)
    for step in trace.steps:
        for share in step.shares:
            yield from _reading_faults(trace, step, share)
    yield from _slot_faults(trace, {sequence: np.unique(positions) for sequence, positions in written.items()})
    for sequence, (prompt, end) in enumerate(zip(trace.header.prompts, trace.end.sequences, strict=True)):
        choices = len(end.token_ids) + (end.finish_reason == "stop")
        rows = len(prompt.ids) + choices - 1
        if not np.array_equal(written.get(sequence, ()), np.arange(rows)):
            yield f"sequence {sequence}: positions written are not 0 to {rows - 1}, once each"
    tokens = sum(step.cost.tokens for step in trace.steps)
    if tokens != sum(map(len, written.values())) or tokens != trace.end.cost.tokens:
        yield f"{tokens} tokens run are not the rows of the steps"


def _check_choice(choice: ChoiceMade, step: int, position: int) -> None:
    if choice.position != position:
        raise _not_replayed(step, f"chooses the token of position {choice.position}, not of {position}")
    if not (_is_best(choice) if choice.draw is None else _is_drawn(choice, choice.draw)):
        raise _not_replayed(step, f"would not have chosen token {choice.token}")


def _is_best(choice: ChoiceMade) -> bool:
    """Whether the chosen one is the first of those with the largest logit that could be chosen."""
    return choice.token == min(_allowed(choice), default=(0, -1))[1]


def _is_drawn(choice: ChoiceMade, draw: float) -> bool:
    """Whether the number falls on the chosen one's share, and that is where its probability says it is."""
    if choice.span is None:
        return False
    c, (low, high) = choice.candidates, choice.span
    probability = dict(zip(c.ids, c.probabilities, strict=True))
    removed = dict(zip(c.ids, c.removed, strict=True))
    fits = removed.get(choice.token) == "" and abs(high - low - probability[choice.token]) < _ROUNDED
    if fits and abs(sum(c.probabilities) - 1) < _ROUNDED:  # all that are left are listed
        order = [token for _, token in sorted(_allowed(choice))]
        before = sum(probability[token] for token in order[: order.index(choice.token)])
        fits = abs(before - low) < _ROUNDED
    return fits and low <= draw < high


def _allowed(choice: ChoiceMade) -> list[tuple[float, int]]:
    """(logit after bias and penalties, negated; id) of what could be chosen: the best one is the smallest."""
    c = choice.candidates
    logits = c.logits if c.adjusted is None else c.adjusted
    columns = zip(c.ids, logits, c.removed, strict=True)
    return [(-logit, token) for token, logit, removed in columns if removed != NOT_ALLOWED or token == choice.token]


def _not_replayed(step: int, what: str) -> TraceError:
    return TraceError(f"the trace does not replay: step {step} {what}; the file was changed, record it again")


def _reading_faults(trace: Trace, step: Step, share: Share) -> Iterator[str]:
    positions = values_of(share.positions)
    for group, kind in enumerate(trace.header.model.groups):
        first, last = values_of(share.first_key[group]), values_of(share.last_key[group])
        oldest = np.maximum(positions - (kind.window or positions + 1) + 1, 0)
        if not (np.array_equal(first, oldest) and np.array_equal(last, positions)):
            yield f"step {step.step}: rows of sequence {share.sequence} do not read the keys of their window"
        if share.held_from[group] > int(first.min()):
            yield f"step {step.step}: sequence {share.sequence} reads keys that were let go"


def _slot_faults(trace: Trace, written: dict[int, NDArray[np.int64]]) -> Iterator[str]:
    """Each slot holds the key that was written last to it, and nobody reads another there.

    ``written`` has each sequence's positions, ascending.
    """
    page = trace.header.page
    for group in range(len(trace.header.model.groups)):
        shares = [[(share, values_of(share.slots[group])) for share in step.shares] for step in trace.steps]
        # Only slots and positions that occur have a place here: whatever numbers a file holds take no memory.
        known = np.unique(np.concatenate([slots for own in shares for _, slots in own]))
        held = np.full((len(known), 2), -1)  # of each of these slots: (sequence, key)
        slot_of = {sequence: np.full(len(positions), -1) for sequence, positions in written.items()}
        for step, own in zip(trace.steps, shares, strict=True):
            for share, slots in own:
                positions = values_of(share.positions)
                if not np.array_equal(slots % page, positions % page):
                    yield f"step {step.step}: a position of sequence {share.sequence} has another place in its page"
                places = np.searchsorted(known, slots)
                held[places] = np.stack((np.full_like(positions, share.sequence), positions), axis=1)
                slot_of[share.sequence][np.searchsorted(written[share.sequence], positions)] = places
            for share, _ in own:
                first = int(values_of(share.first_key[group]).min())
                last = int(values_of(share.last_key[group]).max())
                low, high = np.searchsorted(written[share.sequence], [first, last + 1])
                keys = written[share.sequence][low:high]
                found = held[slot_of[share.sequence][low:high]]
                there = (found[:, 0] == share.sequence) & (found[:, 1] == keys)
                if len(keys) != last - first + 1 or not there.all():
                    yield f"step {step.step}: sequence {share.sequence} reads a key that is not there any more"


def _written(trace: Trace) -> dict[int, NDArray[np.int64]]:
    """Of each sequence the positions that are written, in the order of the steps."""
    found = defaultdict[int, list[NDArray[np.int64]]](list)
    for step in trace.steps:
        for share in step.shares:
            found[share.sequence].append(values_of(share.positions))
    return {sequence: np.concatenate(parts) for sequence, parts in found.items()}
