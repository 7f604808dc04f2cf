"""Whether the parts of a trace fit each other, so that whoever shows it need not ask: a file may hold anything."""

from __future__ import annotations

from collections.abc import Iterator

from cabochon.errors import TraceError
from cabochon.trace.runs import values_of
from cabochon.trace.trace import Candidates, ModelFacts, Runs, Share, Step, Trace

_MOST = 1 << 31


def check_structure(trace: Trace, name: str) -> None:
    """Raises ``TraceError``, which begins with ``name``, where numbers and lengths do not fit each other."""
    for fault in _faults(trace):
        raise TraceError(f"{name}: the trace is damaged: {fault}; record it again")


def _faults(trace: Trace) -> Iterator[str]:
    header, end = trace.header, trace.end
    model = header.model
    if not header.prompts or not all(prompt.ids for prompt in header.prompts):
        yield "there is no prompt, or an empty one"
    if not trace.steps:
        yield "there are no steps"
    layers = sorted(layer for group in model.groups for layer in group.layers)
    if not layers or len(layers) != model.layers or layers != list(range(len(layers))):
        yield "its groups are not a division of its layers"
    if len(end.sequences) != len(header.prompts):
        yield f"{len(header.prompts)} prompts came to {len(end.sequences)} ends"
    for whose, steps in (("its", trace.steps), *((f"{v.variant}'s", v.steps) for v in trace.variants)):
        if [step.step for step in steps] != list(range(len(steps))):
            yield f"{whose} steps are not numbered one after the other"
        longest = sum(step.cost.tokens for step in steps) + max(map(len, (prompt.ids for prompt in header.prompts)))
        for step in steps:
            yield from (f"step {step.step}: {fault}" for fault in _step_faults(trace, step, longest))


def _step_faults(trace: Trace, step: Step, longest: int) -> Iterator[str]:
    """No text of the trace has as many as ``longest`` positions."""
    if not step.shares or step.cost.tokens != sum(len(share.ids) for share in step.shares):
        yield "its rows are not those of its sequences"
    known = len(trace.header.prompts)
    for share in step.shares:
        if share.sequence >= known:
            yield f"there is no sequence {share.sequence}"
            continue
        yield from _share_faults(trace.header.model, share, longest)


def _share_faults(model: ModelFacts, share: Share, longest: int) -> Iterator[str]:
    groups, rows = len(model.groups), len(share.ids)
    if not rows or share.guesses >= rows:
        yield "a sequence has no rows but guesses"
    if not all(len(of_group) == groups for of_group in (share.slots, share.first_key, share.last_key, share.held_from)):
        yield f"not everything is told of {groups} groups"
        return
    for runs in (share.positions, *share.slots, *share.first_key, *share.last_key):
        if not _is_of(runs, rows):
            yield f"its integers are not one for each of {rows} rows"
            return
    for runs in (share.positions, *share.first_key, *share.last_key):
        if max(_ends(runs)) >= longest:
            yield f"a position or key is beyond the text's {longest}"
    for first, last in zip(share.first_key, share.last_key, strict=True):
        if (values_of(last) < values_of(first)).any():
            yield "a row sees less than nothing"
    for choice in share.choices:
        yield from _candidate_faults(choice.candidates, choice.token)
    for row in share.attention:
        if row.layer >= model.layers or len(row.weights) != model.heads:
            yield f"attention is told of layer {row.layer} and {len(row.weights)} heads"
        elif row.position >= longest or any(row.first_key + len(head) != row.position + 1 for head in row.weights):
            yield "attention is told of other keys than those up to its row"


def _candidate_faults(c: Candidates, token: int) -> Iterator[str]:
    columns = [c.logits, c.removed, c.probabilities, *(x for x in (c.raw, c.adjusted, c.scaled) if x is not None)]
    if any(len(column) != len(c.ids) for column in columns):
        yield "the columns of its candidates are not of one length"
    if token not in c.ids:
        yield f"the chosen token {token} is no candidate"


def _is_of(runs: Runs, rows: int) -> bool:
    """Whether they are so many integers, each from 0 to 2**31 - 1."""
    counts_fit = all(0 < count <= rows for *_, count in runs) and sum(count for *_, count in runs) == rows
    differences_fit = all(abs(difference) < _MOST for _, difference, _ in runs)
    return counts_fit and differences_fit and all(0 <= end < _MOST for end in _ends(runs))


def _ends(runs: Runs) -> list[int]:
    return [end for first, difference, count in runs for end in (first, first + difference * (count - 1))]
