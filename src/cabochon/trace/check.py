"""What must be true of a trace, whatever model ran: checked without one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from cabochon.errors import TraceError
from cabochon.trace.runs import values_of
from cabochon.trace.trace import ChoiceMade, Share, Step, Trace


def replay(trace: Trace) -> tuple[str, ...]:
    """The text of each sequence, made again: every choice is repeated from its candidates and its random number.

    Raises ``TraceError`` where that gives another token or text than was written down.
    """
    texts, ids = [""] * len(trace.header.prompts), [list(prompt.ids) for prompt in trace.header.prompts]
    for step in trace.steps:
        for share in step.shares:
            for choice in share.choices:
                _check_choice(choice, step.step, len(ids[share.sequence]))
                texts[share.sequence] += choice.text
                if choice.ends != "stop":
                    ids[share.sequence].append(choice.token)
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
    written = defaultdict[int, list[int]](list)
    for step in trace.steps:
        for share in step.shares:
            written[share.sequence] += values_of(share.positions).tolist()
            yield from _reading_faults(trace, step, share)
    yield from _slot_faults(trace)
    for sequence, (prompt, end) in enumerate(zip(trace.header.prompts, trace.end.sequences, strict=True)):
        choices = len(end.token_ids) + (end.finish_reason == "stop")
        rows = len(prompt.ids) + choices - 1
        if written[sequence] != list(range(rows)):
            yield f"sequence {sequence}: positions written are not 0 to {rows - 1}, once each"
    tokens = sum(step.cost.tokens for step in trace.steps)
    if tokens != sum(map(len, written.values())) or tokens != trace.end.cost.tokens:
        yield f"{tokens} tokens run are not the rows of the steps"


def _check_choice(choice: ChoiceMade, step: int, position: int) -> None:
    where = f"the trace does not replay: step {step}"
    if choice.position != position:
        raise TraceError(f"{where} chooses the token of position {choice.position}, not of {position}")
    if choice.draw is None or choice.span is None:
        place = choice.candidates.ids.index(choice.token) if choice.token in choice.candidates.ids else -1
        right = place >= 0 and choice.candidates.removed[place] == ""
    else:
        right = choice.span[0] <= choice.draw < choice.span[1]
    if not right:
        raise TraceError(f"{where} would not have chosen token {choice.token}; the file was changed, record it again")


def _reading_faults(trace: Trace, step: Step, share: Share) -> Iterator[str]:
    positions = values_of(share.positions)
    for group, kind in enumerate(trace.header.model.groups):
        first, last = values_of(share.first_key[group]), values_of(share.last_key[group])
        oldest = np.maximum(positions - (kind.window or positions + 1) + 1, 0)
        if not (np.array_equal(first, oldest) and np.array_equal(last, positions)):
            yield f"step {step.step}: rows of sequence {share.sequence} do not read the keys of their window"
        if share.held_from[group] > int(first.min()):
            yield f"step {step.step}: sequence {share.sequence} reads keys that were let go"


def _slot_faults(trace: Trace) -> Iterator[str]:
    """Each slot holds the key that was written last to it, and nobody reads another there."""
    page = trace.header.page
    for group in range(len(trace.header.model.groups)):
        shares = [[(share, values_of(share.slots[group])) for share in step.shares] for step in trace.steps]
        known = np.unique(np.concatenate([slots for own in shares for _, slots in own]))
        held = np.full((len(known), 2), -1)  # of each of these slots: (sequence, key)
        slot_of = np.full((len(trace.header.prompts), sum(step.cost.tokens for step in trace.steps)), -1)
        for step, own in zip(trace.steps, shares, strict=True):
            for share, slots in own:
                positions = values_of(share.positions)
                if not np.array_equal(slots % page, positions % page):
                    yield f"step {step.step}: a position of sequence {share.sequence} has another place in its page"
                places = np.searchsorted(known, slots)
                held[places] = np.stack((np.full_like(positions, share.sequence), positions), axis=1)
                slot_of[share.sequence, positions] = places
            for share, _ in own:
                keys = np.arange(values_of(share.first_key[group]).min(), values_of(share.last_key[group]).max() + 1)
                found = held[slot_of[share.sequence, keys]]
                if not ((found[:, 0] == share.sequence) & (found[:, 1] == keys)).all():
                    yield f"step {step.step}: sequence {share.sequence} reads a key that is not there any more"
