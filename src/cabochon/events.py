"""What happens while an engine runs, as data: the plan of a step, and what a step brought to a request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cabochon.types import FinishReason, Float32, Int32, Logits, StepInput, TokenOut


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """One sequence's share of a step."""

    request: int
    """Number of the request, in order of arrival."""
    first: int
    """Position of its first row."""
    rows: int
    """How many positions are run."""
    samples: bool
    """Whether logits are wanted, and a token: nothing that is known of the sequence is left to run after it."""
    guesses: tuple[int, ...] = ()
    """Ids of the last rows where they are guesses; a token is chosen after each as long as they are right."""
    scores: bool = False
    """Whether the logits of all rows are wanted, to tell how probable the prompt's next id is after each."""
    best_only: bool = False
    """Whether tokens are the ids with the largest logits, whatever the others are."""

    @property
    def end(self) -> int:
        """Position after the last row."""
        return self.first + self.rows

    @property
    def logits(self) -> int:
        """How many rows' logits are wanted: those of the last ones."""
        if self.scores:
            return self.rows
        return len(self.guesses) + 1 if self.samples else 0

    @property
    def known(self) -> int:
        """Rows that are no guesses: the token sampled after them has position ``first + known``."""
        return self.rows - len(self.guesses)

    @property
    def without_guesses(self) -> SequencePlan:
        """The rows that are no guesses."""
        return replace(self, rows=self.known, guesses=())


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step runs, integers only; its rows are those of the sequences, one after the other."""

    sequences: tuple[SequencePlan, ...]

    @property
    def rows(self) -> int:
        """T."""
        return sum(sequence.rows for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """A request got a token, came to its end, or both."""

    request: int
    token: TokenOut | None
    """None where a stop id ended the request: the stop id is no part of the text."""
    finish_reason: FinishReason | None
    """None while it goes on."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one part of sampling left of the candidates."""

    name: str
    """``temperature``, ``top_k``, ``typical``, ``top_p``, ``min_p``, ``xtc`` or ``greedy`` (``docs/sampling.md``)."""
    kept: int
    """How many are left."""
    ids: Int32
    """[n] the best of them, in order; all that are left from the first filter on."""
    logits: Float32
    """[n] descending, as the part left them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How the token after one row was chosen."""

    token: TokenOut
    row: Float32 | None = None
    """[n] logits of the first n ids after bias and penalties, -inf where it could not be chosen; maybe the model's own
    memory, and None where the model told the best id only."""
    allowed: int = 0
    """Ids that might be chosen at all."""
    stages: tuple[Stage, ...] = ()
    """In order; empty where the model told the best id only."""
    draw: float | None = None
    """The random number in (0, 1), if one was drawn."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of the engine, about to be committed: everything that went in, and what was chosen."""

    plan: StepPlan
    step: StepInput
    logits: Logits
    """Valid for the call."""
    choices: tuple[tuple[Choice, ...], ...]
    """For each sequence of the plan; of its last ``logits`` rows, one after the other, as far as guesses were right."""
    seconds: float
    """Of the step so far: the arrays, the model, and sampling."""
