"""Records what an engine tells of its steps: an observer that writes down integers, and how tokens were chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from cabochon.events import Choice, SequencePlan, StepPlan, StepRecord
from cabochon.trace.choices import FEW, LISTED, Glance, choice_made, glance
from cabochon.trace.runs import runs_of
from cabochon.trace.trace import AttentionRow, ChoiceMade, Cost, Runs, Share, Step
from cabochon.types import PAGE, Int32, LogitRow, StepInput


@dataclass(frozen=True, slots=True)
class Recorded:
    """A sequence that is recorded."""

    index: int
    """Among the trace's prompts."""
    prompt: int
    """Ids of its prompt."""
    temperature: float


@dataclass(frozen=True, slots=True)
class _Taken:
    """A step as it was told of, without what is the model's own memory."""

    plan: StepPlan
    step: StepInput
    choices: tuple[tuple[Glance | ChoiceMade, ...], ...]
    attention: tuple[tuple[AttentionRow, ...], ...]
    """Of each sequence's rows that chose."""
    seconds: float


@dataclass(slots=True)
class Recorder:
    """Keeps each step that it is told of (``Observer``), to be made a part of a trace when the run is over.

    While it runs as little as can be is done: the rest waits for ``steps``.
    """

    sequences: dict[int, Recorded]
    """By the engine's number of the request."""
    cost_of: Callable[[StepInput], Cost]
    piece: Callable[[int], str]
    """The name of an id."""
    listed: int = LISTED
    """Candidates of each choice."""
    attention_of: Callable[[StepInput], tuple[tuple[AttentionRow, ...], ...]] | None = None
    """Of each row whose logits were wanted; None where nobody asks."""
    named: set[int] = field(default_factory=set)
    """Ids that the trace has named already."""
    _taken: list[_Taken] = field(default_factory=list)

    def __call__(self, record: StepRecord) -> None:
        """Keeps a step."""
        logits, taken, looks = record.logits.rows(), [], []
        attention = iter(() if self.attention_of is None else self.attention_of(record.step))
        for plan, choices in zip(record.plan.sequences, record.choices, strict=True):
            rows = [next(logits) for _ in range(plan.logits)]
            # Rows after the first wrong guess chose nothing.
            pairs = enumerate(zip(choices, rows, strict=False))
            taken.append(tuple(self._looked_at(choice, row, plan, n) for n, (choice, row) in pairs))
            of_rows = list(islice(attention, plan.logits))[: len(choices)]
            looks.append(tuple(chain.from_iterable(of_rows)))
        self._taken.append(_Taken(record.plan, record.step, tuple(taken), tuple(looks), record.seconds))

    def steps(self) -> Iterator[Step]:
        """What was kept, as parts of a trace; texts and ends of the choices are blank. Once."""
        for number, taken in enumerate(self._taken):
            shares, row = [], 0
            for index, (plan, seen) in enumerate(zip(taken.plan.sequences, taken.choices, strict=True)):
                choices = tuple(self._made(choice, plan, n) for n, choice in enumerate(seen))
                rows = slice(row, row + plan.rows)
                looks = taken.attention[index]
                shares.append(_share(taken.step, index, rows, plan, self.sequences[plan.request], choices, looks))
                row += plan.rows
            cost, pieces = self.cost_of(taken.step), self._new_pieces(shares)
            yield Step(number, tuple(shares), cost, round(taken.seconds, 6), pieces)
        self._taken.clear()

    def _looked_at(self, choice: Choice, row: LogitRow, plan: SequencePlan, n: int) -> Glance | ChoiceMade:
        """What is to be kept of a choice; all is worked out at once where that would be much."""
        seen = glance(choice, row, self.listed)
        return seen if all(len(stage.ids) <= FEW for stage in seen.stages) else self._made(seen, plan, n)

    def _made(self, seen: Glance | ChoiceMade, plan: SequencePlan, n: int) -> ChoiceMade:
        """The ``n``-th choice of a sequence's share of a step."""
        if isinstance(seen, ChoiceMade):
            return seen
        return choice_made(seen, plan.first + plan.known + n, self.sequences[plan.request].temperature)

    def _new_pieces(self, shares: Iterable[Share]) -> dict[int, str]:
        ids = {i for share in shares for i in share.ids}
        ids |= {i for share in shares for choice in share.choices for i in choice.candidates.ids}
        new = sorted(ids - self.named)
        self.named.update(new)
        return {token_id: self.piece(token_id) for token_id in new}


def _share(
    step: StepInput,
    number: int,
    rows: slice,
    plan: SequencePlan,
    sequence: Recorded,
    choices: tuple[ChoiceMade, ...],
    attention: tuple[AttentionRow, ...],
) -> Share:
    """One sequence's rows of a step, as the model was given them."""
    return Share(
        sequence=sequence.index,
        # A text that had to make room runs again from its beginning, its reply included.
        phase="prefill" if plan.first < sequence.prompt or plan.known > 1 else "decode",
        ids=tuple(step.ids[rows].tolist()),
        guesses=len(plan.guesses),
        positions=runs_of(step.positions[rows]),
        slots=_runs_of_each(step.slots[:, rows]),
        first_key=_runs_of_each(step.first_key[:, rows]),
        last_key=_runs_of_each(step.last_key[:, rows]),
        held_from=tuple(int((table[number] >= 0).argmax()) * PAGE for table in step.page_tables),
        choices=choices,
        attention=attention,
    )


def _runs_of_each(values: Int32) -> tuple[Runs, ...]:
    return tuple(map(runs_of, values))
