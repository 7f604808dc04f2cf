"""Records what an engine tells of its steps: an observer that writes down integers, and how tokens were chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from cabochon.events import Choice, SequencePlan, StepRecord
from cabochon.trace.choices import LISTED, choice_made
from cabochon.trace.runs import runs_of
from cabochon.trace.trace import ChoiceMade, Costs, Runs, Share, Step
from cabochon.types import PAGE, Int32, LogitRow, StepInput


@dataclass(frozen=True, slots=True)
class Recorded:
    """A sequence that is recorded."""

    index: int
    """Among the trace's prompts."""
    prompt: int
    """Ids of its prompt."""
    temperature: float


@dataclass(slots=True)
class Recorder:
    """Keeps each step that it is told of (``Observer``) as a part of a trace.

    Texts and ends of its choices are blank: they are known when the run is over.
    """

    sequences: dict[int, Recorded]
    """By the engine's number of the request."""
    cost_of: Callable[[StepInput], Costs]
    piece: Callable[[int], str]
    """The name of an id."""
    listed: int = LISTED
    """Candidates of each choice."""
    named: set[int] = field(default_factory=set)
    """Ids that the trace has named already."""
    steps: list[Step] = field(default_factory=list)

    def __call__(self, record: StepRecord) -> None:
        """Writes a step down."""
        logits, row = record.logits.rows(), 0
        shares = []
        for number, (plan, choices) in enumerate(zip(record.plan.sequences, record.choices, strict=True)):
            sequence = self.sequences[plan.request]
            made = tuple(self._made(plan, choices, [next(logits) for _ in range(plan.logits)], sequence))
            shares.append(_share(record.step, number, slice(row, row + plan.rows), plan, sequence, made))
            row += plan.rows
        cost, pieces = self.cost_of(record.step), self._new_pieces(shares)
        self.steps.append(Step(len(self.steps), tuple(shares), cost, round(record.seconds, 6), pieces))

    def _made(
        self, plan: SequencePlan, choices: Iterable[Choice], logits: Iterable[LogitRow], sequence: Recorded
    ) -> Iterator[ChoiceMade]:
        """Choices after the first wrong guess are of no text."""
        for n, (choice, row) in enumerate(zip(choices, logits, strict=False)):
            yield choice_made(choice, row, plan.first + plan.known + n, sequence.temperature, self.listed)

    def _new_pieces(self, shares: Iterable[Share]) -> dict[int, str]:
        ids = {i for share in shares for i in share.ids}
        ids |= {i for share in shares for choice in share.choices for i in choice.candidates.ids}
        new = sorted(ids - self.named)
        self.named.update(new)
        return {token_id: self.piece(token_id) for token_id in new}


def _share(
    step: StepInput, number: int, rows: slice, plan: SequencePlan, sequence: Recorded, choices: tuple[ChoiceMade, ...]
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
    )


def _runs_of_each(values: Int32) -> tuple[Runs, ...]:
    return tuple(map(runs_of, values))
