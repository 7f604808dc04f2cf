"""A generation as the fields of ``--json``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cabochon.session import Generation, Session


def generation_report(result: Generation, session: Session) -> dict[str, Any]:
    """What ``generate --json`` prints; the seed only if something was drawn with it."""
    report = {
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
    return report if result.top is None else {**report, "top": result.top}
