"""Logits of a step to tokens and scores (stop 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from cabochon.engine.request import RequestState
from cabochon.events import SequencePlan
from cabochon.sampling.history import History
from cabochon.sampling.sampler import best_token, check_finite, sample, with_logprobs
from cabochon.types import BestId, LogitRow, TokenOut


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the logits of one sequence's share of a step gave."""

    scores: tuple[TokenOut, ...] = ()
    """Ids of the prompt, each with its log-probability."""
    tokens: tuple[TokenOut, ...] = ()
    """Tokens chosen: none in the middle of a prompt."""


def choose(
    share: SequencePlan, logits: Iterator[LogitRow], bests: Iterator[BestId], state: RequestState, vocab: int
) -> Chosen:
    """Scores or chooses after each of the share's next ``share.logits`` rows of one or the other.

    Raises as ``sample`` does.
    """
    if share.scores:
        return Chosen(scores=_score(share, list(islice(logits, share.logits)), state, vocab))
    rows: list[LogitRow | BestId] = list(islice(bests if share.best_only else logits, share.logits))
    return Chosen(tokens=_tokens(share, rows, state, vocab))


def _score(share: SequencePlan, logits: Sequence[LogitRow], state: RequestState, vocab: int) -> tuple[TokenOut, ...]:
    scores, top = [], state.request.prompt_logprobs or 0
    for position, row in enumerate(logits, start=share.first + 1):
        check_finite(row, position)
        scores.append(with_logprobs(state.ids[position], row.values, vocab, top))
    return tuple(scores)


def _tokens(
    share: SequencePlan, logits: Sequence[LogitRow | BestId], state: RequestState, vocab: int
) -> tuple[TokenOut, ...]:
    """One token, and one more after each guess that was right."""
    tokens = list[TokenOut]()
    for row, guess in zip(logits, (*share.guesses, None), strict=False):
        tokens.append(_token(row, state, tokens, vocab))
        if tokens[-1].token_id != guess or guess in state.request.stop_ids:
            break
    return tuple(tokens)


def _token(logits: LogitRow | BestId, state: RequestState, chosen: Sequence[TokenOut], vocab: int) -> TokenOut:
    """The token after a sequence and those chosen for it in this step."""
    request, ids = state.request, state.ids
    if chosen:
        ids = [*ids, *(token.token_id for token in chosen)]
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
