"""Logits of a step to tokens and scores (stop 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from cabochon.engine.request import RequestState
from cabochon.events import Choice, SequencePlan
from cabochon.sampling.history import History
from cabochon.sampling.sampler import best_token, check_finite, sample, with_logprobs
from cabochon.types import BestId, LogitRow, TokenOut


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the logits of one sequence's share of a step gave."""

    scores: tuple[TokenOut, ...] = ()
    """Ids of the prompt, each with its log-probability."""
    choices: tuple[Choice, ...] = ()
    """Of tokens: none in the middle of a prompt."""

    @property
    def tokens(self) -> list[TokenOut]:
        """Those chosen."""
        return [choice.token for choice in self.choices]


def choose(
    share: SequencePlan, logits: Iterator[LogitRow], bests: Iterator[BestId], state: RequestState, vocab: int
) -> Chosen:
    """Scores or chooses after each of the share's next ``share.logits`` rows of one or the other.

    Raises as ``sample`` does.
    """
    if share.scores:
        return Chosen(scores=_score(share, list(islice(logits, share.logits)), state, vocab))
    rows: list[LogitRow | BestId] = list(islice(bests if share.best_only else logits, share.logits))
    return Chosen(choices=_choices(share, rows, state, vocab))


def _score(share: SequencePlan, logits: Sequence[LogitRow], state: RequestState, vocab: int) -> tuple[TokenOut, ...]:
    scores, top = [], state.request.prompt_logprobs or 0
    for position, row in enumerate(logits, start=share.first + 1):
        check_finite(row, position)
        scores.append(with_logprobs(state.ids[position], row.values, vocab, top))
    return tuple(scores)


def _choices(
    share: SequencePlan, logits: Sequence[LogitRow | BestId], state: RequestState, vocab: int
) -> tuple[Choice, ...]:
    """One, and one more after each guess that was right."""
    choices = list[Choice]()
    for row, guess in zip(logits, (*share.guesses, None), strict=False):
        choices.append(_choice(row, state, choices, vocab))
        token_id = choices[-1].token.token_id
        if token_id != guess or guess in state.request.stop_ids:
            break
    return tuple(choices)


def _choice(logits: LogitRow | BestId, state: RequestState, before: Sequence[Choice], vocab: int) -> Choice:
    """Of the token after a sequence and those chosen for it before in this step."""
    request, ids = state.request, state.ids
    if before:
        ids = [*ids, *(choice.token.token_id for choice in before)]
    if isinstance(logits, BestId):
        return best_token(logits, len(ids))
    return sample(
        logits,
        request.params,
        History(ids, len(request.prompt)),
        vocab,
        request.logprobs,
        stop_ids=request.stop_ids,
        constraint=request.constraint,
    )
