"""Tokens and their log-probabilities as a table for people."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cabochon.cli import stdio
from cabochon.session import Session


def token_table(
    session: Session,
    first: int,
    ids: Sequence[int],
    logprobs: Sequence[float | None],
    tops: Sequence[Sequence[tuple[int, float]] | None],
) -> str:
    """One line for each token, numbered from ``first``; with the most probable ones in its place, if there are any."""
    rows = [("", "id", "logprob", "token", "most probable" if any(tops) else "")]
    for number, (token, logprob, top) in enumerate(zip(ids, logprobs, tops, strict=True), start=first):
        value = "-" if logprob is None else f"{logprob:.4f}"
        others = ", ".join(f"{_shown(session, other)} {probability:.4f}" for other, probability in top or ())
        rows.append((str(number), str(token), value, _shown(session, token), others))
    return stdio.table(rows, left=(3, 4)).rstrip("\n")


def _shown(session: Session, token: int) -> str:
    return json.dumps(session.tokenizer.piece(token), ensure_ascii=False)
