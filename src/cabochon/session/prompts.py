"""What callers give as texts and ids, checked as far as no vocabulary is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cabochon.errors import UsageError, shown
from cabochon.text.tokenizer import Tokenizer


def prompt_ids(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> tuple[int, ...]:
    """Ids of a prompt: a text gets BOS in front, ids are taken as they are.

    Raises ``UsageError`` if it is the empty text or no prompt at all.
    """
    if isinstance(prompt, bytes):
        raise UsageError("a prompt must be a text or a list of token ids, not bytes; decode them first")
    if isinstance(prompt, str):
        if not prompt:
            raise UsageError("the prompt is empty; to begin from nothing, give the id of BOS instead of a text")
        return tuple(tokenizer.encode(prompt, bos=True))
    try:
        return tuple(prompt)
    except TypeError:
        raise UsageError(f"a prompt must be a text or a list of token ids, not {shown(prompt)}") from None


def listed_ids(ids: Iterable[int]) -> Iterable[int]:
    """``ids``; raises ``UsageError`` for a text, and for what holds none."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise UsageError(f"ids must be a list of token ids, not {shown(ids)}")
    return ids
