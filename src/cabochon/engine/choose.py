"""Logits of a step to tokens and scores (stop 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cabochon.engine.request import RequestState
from cabochon.events import SequencePlan
from cabochon.sampling.history import History
from cabochon.sampling.sampler import check_finite, sample, with_logprobs
from cabochon.types import LogitRow, TokenOut


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the logits of one sequence's share of a step gave."""

    scores: tuple[TokenOut, ...] = ()
    """Ids of the prompt, each with its log-probability."""
    tokens: tuple[TokenOut, ...] = ()
    """Tokens chosen: none in the middle of a prompt."""


def choose(share: SequencePlan, logits: Sequence[LogitRow], state: RequestState, vocab: int) -> Chosen:
    """Scores or chooses after each row of ``logits``, which are those of a share, ``share.logits`` of them.

    Raises as ``sample`` does.
    """
    if share.scores:
        return Chosen(scores=_score(share, logits, state, vocab))
    return Chosen(tokens=_tokens(share, logits, state, vocab))


def _score(share: SequencePlan, logits: Sequence[LogitRow], state: RequestState, vocab: int) -> tuple[TokenOut, ...]:
    scores, top = [], state.request.prompt_logprobs or 0
    for position, row in enumerate(logits, start=share.first + 1):
        check_finite(row, position)
        scores.append(with_logprobs(state.ids[position], row.values, vocab, top))
    return tuple(scores)


def _tokens(share: SequencePlan, logits: Sequence[LogitRow], state: RequestState, vocab: int) -> tuple[TokenOut, ...]:
    """One token, and one more after each guess that was right."""
    tokens = list[TokenOut]()
    for row, guess in zip(logits, (*share.guesses, None), strict=False):
        tokens.append(_token(row, state, tokens, vocab))
        if tokens[-1].token_id != guess or guess in state.request.stop_ids:
            break
    return tuple(tokens)


def _token(logits: LogitRow, state: RequestState, chosen: Sequence[TokenOut], vocab: int) -> TokenOut:
    """The token after a sequence and those chosen for it in this step."""
    request, ids = state.request, state.ids
    if chosen:
        ids = [*ids, *(token.token_id for token in chosen)]
    return sample(
        logits,
        request.params,
        History(ids, len(request.prompt)),
        vocab,
        request.logprobs,
        stop_ids=request.stop_ids,
        constraint=request.constraint,
    )
