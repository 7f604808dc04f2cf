"""A generation as the fields of ``--json``, and its log-probabilities as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cabochon.cli.tokens import token_table
from cabochon.session import Generation, Session


def generation_report(result: Generation, session: Session) -> dict[str, Any]:
    """What ``generate --json`` prints; the seed only if something was drawn with it."""
    report: dict[str, Any] = {
        "text": result.text,
        "token_ids": result.token_ids,
        "logprobs": result.logprobs,
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        "reused_tokens": result.reused_tokens,
        "timings": asdict(result.timings),
        "model": session.name,
        "seed": result.seed if result.sampled else None,
    }
    if result.top is not None:
        report["top"] = result.top
    if result.prompt_logprobs is not None:
        report |= {"prompt_token_ids": result.prompt_token_ids, "prompt_logprobs": result.prompt_logprobs}
    if result.prompt_top is not None:
        report["prompt_top"] = result.prompt_top
    return report


def logprob_tables(result: Generation, session: Session) -> Iterator[str]:
    """For people: the log-probabilities of the prompt's tokens and of the text's, as far as they were asked for."""
    asked = (
        (result.prompt_token_ids, result.prompt_logprobs, result.prompt_top),
        (result.token_ids, result.logprobs, result.top),
    )
    for ids, logprobs, tops in asked:
        if ids is not None and logprobs is not None:
            known = ids[: len(logprobs)]
            yield token_table(session, 0, known, logprobs, tops or ((),) * len(known))
