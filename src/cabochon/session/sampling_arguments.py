"""How a caller says how tokens are chosen: keyword arguments that ``request``, ``generate`` and ``stream`` share."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, TypedDict

from cabochon.errors import UsageError, shown
from cabochon.sampling.constraint import Constraint
from cabochon.sampling.params import listed
from cabochon.text.containing import TokensContaining
from cabochon.text.tokenizer import Tokenizer
from cabochon.types import FilterOrder, SamplingParams

DRY_BREAKERS = ("\n", ":", '"', "*")
"""No repeated sequence goes across these unless told otherwise."""


class SamplingArguments(TypedDict, total=False):
    """Fields of ``SamplingParams``; what is None or left out is the model's default, and for ``seed`` a new random one.

    Where those have token ids, texts will do as well.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    seed: int | None
    choice: int | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    penalty_last_n: int | None
    logit_bias: Mapping[int, float] | None
    """Token ids and what is added to their logits."""
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: str | Iterable[str | int] | None
    """Token ids, or texts: each stands for all tokens whose text contains it."""
    xtc_probability: float | None
    xtc_threshold: float | None
    min_tokens: int | None
    bad_words: str | Iterable[str | Sequence[int]] | None
    """Sequences of token ids, or texts: each stands for its tokens, and its tokens with a space in front."""
    order: FilterOrder | None


class RequestArguments(SamplingArguments, total=False):
    """Those and all others of ``Session.request``."""

    max_tokens: int
    ignore_eos: bool
    logprobs: int | None
    loop_guard: int
    constraint: Constraint | None
    prompt_logprobs: int | None


class SamplingReader:
    """Turns arguments into parameters, for one vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._containing = TokensContaining(tokenizer)

    def params(self, arguments: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
        """Parameters to be checked yet; raises ``UsageError`` for an unknown argument or a text of no use."""
        for name in arguments:
            if name not in SamplingArguments.__annotations__:
                raise UsageError(f"there is no option {shown(name)}")
        given = {name: value for name, value in arguments.items() if value is not None}
        given.setdefault("seed", secrets.randbits(64))
        if "bad_words" in given:
            given["bad_words"] = self._words(given["bad_words"])
        if "dry_sequence_breakers" in given:
            given["dry_sequence_breakers"] = self._breakers(given["dry_sequence_breakers"])
        elif isinstance(given.get("dry_multiplier"), Real) and given["dry_multiplier"] > 0:
            given["dry_sequence_breakers"] = self._containing.ids(DRY_BREAKERS)
        return replace(defaults, **given)

    def _words(self, given: object) -> tuple[object, ...]:
        words: list[object] = []
        for word in [given] if isinstance(given, str) else listed("bad_words", given, "texts or lists of token ids"):
            if not isinstance(word, str):
                words.append(word)
            elif word:
                words += (self._tokenizer.encode(text, bos=False) for text in (word, " " + word))
            else:
                raise UsageError("bad_words must not hold the empty text: it is in every text")
        return tuple(words)

    def _breakers(self, given: object) -> frozenset[object]:
        name = "dry_sequence_breakers"
        breakers = [given] if isinstance(given, str) else listed(name, given, "texts or token ids")
        texts = [breaker for breaker in breakers if isinstance(breaker, str)]
        ids = [breaker for breaker in breakers if not isinstance(breaker, str)]
        try:
            return frozenset(ids) | self._containing.ids(texts)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from None
        except TypeError:
            raise UsageError(f"{name} must be a list of texts or token ids, not {shown(given)}") from None
