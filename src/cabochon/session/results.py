"""What a session gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cabochon.types import FinishReason, TokenOut

TopLogprobs: TypeAlias = tuple[tuple[int, float], ...]
"""The most probable (id, log-probability) pairs, best first."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next piece of a stream. Joined, the texts are the text of the ``Generation``."""

    text: str
    """What is certain now; often empty, while a character or a stop string may still be completed."""
    token: TokenOut | None
    """The token just chosen; None in a last chunk that brings none."""
    finish_reason: FinishReason | None
    """None in all chunks but the last."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds and tokens per second; None where nothing was measured."""

    load_s: float
    """Opening the model."""
    first_token_s: float | None
    """From the first request for a chunk to the first token."""
    prefill_tokens_per_s: float | None
    """Tokens of the prompt by the time of the steps up to the first token."""
    decode_tokens_per_s: float | None
    """Further tokens by the time of their steps."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A continuation, and how it came about."""

    text: str
    """Without the prompt, a stop id, a stop string or what came after it."""
    token_ids: tuple[int, ...]
    """All tokens chosen, those that spell a stop string included; a stop id is not."""
    logprobs: tuple[float, ...] | None
    """Of each token in the model's own distribution; None unless asked for."""
    top: tuple[TopLogprobs, ...] | None
    """For each token the most probable ones in its place; None unless asked for."""
    finish_reason: FinishReason
    prompt_tokens: int
    timings: Timings
    seed: int
    """The one used: asked for, or chosen at random. With it the same text comes again."""
    reused_tokens: int = 0
    """Tokens of the prompt whose keys and values were stored already, by an earlier text that begins alike."""
    sampled: bool = True
    """Whether tokens were drawn; with temperature 0 none is, and the seed does not matter."""
    prompt_token_ids: tuple[int, ...] | None = None
    """The prompt's; None unless its log-probabilities were asked for."""
    prompt_logprobs: tuple[float | None, ...] | None = None
    """Of each of them given those before it, None for the first; as far as they have been run, if it ended early."""
    prompt_top: tuple[TopLogprobs | None, ...] | None = None
    """The most probable in the place of each; None unless asked for."""


@dataclass(frozen=True, slots=True)
class Score:
    """How probable a text is, token by token."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    """Of each token given those before it; None for the first."""
    perplexity: float | None
    """``exp`` of minus the mean of the log-probabilities; None if there are none."""
    top: tuple[TopLogprobs | None, ...] | None
    """For each token the most probable ones in its place (None for the first); None unless asked for."""


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """What a file of a conversation holds."""

    tokens: int
    stored_tokens: int
    """Those from its beginning on that a next turn need not run again."""
    nbytes: int
    """Size of the file."""
