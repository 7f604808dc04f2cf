"""Arguments that a user gave, checked before anything is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from cabochon.compat.gemma_pytorch.config import AttentionType, GemmaConfig
from cabochon.errors import ContextLengthError, UsageError, shown
from cabochon.ops.torch import check_device
from cabochon.sampling.params import listed, whole_number


def prompt_list(prompts: str | Sequence[str]) -> list[str]:
    """One prompt or several, as a list. Raises ``UsageError`` if there is none, or one is no text."""
    found = [prompts] if isinstance(prompts, str) else listed("prompts", prompts, "texts")
    if not found:
        raise UsageError("prompts is empty; give a text, or a list of them")
    texts = [prompt for prompt in found if isinstance(prompt, str)]
    if len(texts) < len(found):
        wrong = next(prompt for prompt in found if not isinstance(prompt, str))
        raise UsageError(f"prompts must be texts, not {shown(wrong)}")
    return texts


def check_length(longest: int, output_len: int, config: GemmaConfig) -> None:
    """Raises ``ContextLengthError`` if the longest prompt and its continuation do not fit the model's positions."""
    limit = config.max_position_embeddings
    if longest + output_len > limit:
        raise ContextLengthError(
            f"a prompt of {longest} tokens and output_len {output_len} are more than the {limit} positions of "
            "config.max_position_embeddings; shorten the prompt or output_len"
        )


def sampling_tensors(
    batch: int, temperature: float | None, top_p: float | None, top_k: int | None, device: torch.device
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The three settings for every row, [B] each; without a temperature there are none.

    Raises ``UsageError`` naming one that cannot be.
    """
    temperature = 0.0 if temperature is None else _number("temperature", temperature, math.inf)
    top_p = 1.0 if top_p is None else _number("top_p", top_p, 1.0)
    top_k = 0 if top_k is None else whole_number("top_k", top_k, at_least=0)
    if not temperature:
        return None, None, None
    return (
        torch.full((batch,), temperature, dtype=torch.float32, device=device),
        torch.full((batch,), top_p, dtype=torch.float32, device=device),
        torch.full((batch,), top_k, device=device),
    )


def _number(name: str, value: object, most: float) -> float:
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not 0 <= number <= most or math.isinf(number):
        wanted = "0 (the most probable token) or more" if math.isinf(most) else f"from 0 to {most:g}"
        raise UsageError(f"{name} must be a number, {wanted}, not {shown(value)}")
    return number


def checked_device(wanted: object, actual: torch.device) -> torch.device:
    """``actual``, where the weights are. Raises ``UsageError`` if ``wanted`` is another device, or none."""
    if not isinstance(wanted, str | torch.device):
        raise UsageError(f"device must be the name of a device, not {shown(wanted)}")
    check_device(str(wanted))
    if torch.empty(0, device=wanted).device != torch.empty(0, device=actual).device:
        raise UsageError(f"device is {wanted}, but the model is on {actual}; move it with model.to({str(wanted)!r})")
    return actual


def check_forward(
    config: GemmaConfig,
    input_token_ids: Tensor,
    input_positions: Tensor,
    kv_write_indices: Tensor,
    kv_caches: Sequence[tuple[Tensor, Tensor]],
    mask: Tensor,
    local_mask: Tensor | None,
    unknown: Sequence[str],
) -> None:
    """Raises ``UsageError`` naming the argument of ``forward`` that cannot be."""
    if unknown:
        raise UsageError(f"forward has no argument {unknown[0]}")
    if input_token_ids.ndim != 2 or not input_token_ids.numel():
        raise UsageError(f"input_token_ids must be [B, L], not {list(input_token_ids.shape)}")
    B, L = input_token_ids.shape
    if len(kv_caches) != config.num_hidden_layers:
        raise UsageError(f"kv_caches must have {config.num_hidden_layers} entries, one a layer, not {len(kv_caches)}")
    S = kv_caches[0][0].shape[1]
    _check_shape("input_positions", input_positions, (L,))
    _check_shape("kv_write_indices", kv_write_indices, (L,))
    for cache in (tensor for pair in kv_caches for tensor in pair):
        _check_shape("each of kv_caches", cache, (B, S, config.num_key_value_heads, config.head_dim))
    _check_shape("mask", mask, (1, 1, L, S))
    if local_mask is not None:
        _check_shape("local_mask", local_mask, (1, 1, L, S))
    elif AttentionType.LOCAL_SLIDING in config.attn_types and (config.sliding_window_size or 0) < S:
        raise UsageError(
            f"local_mask is needed: the cache has {S} slots and a sliding layer sees {config.sliding_window_size}"
        )


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise UsageError(f"{name} must have shape {list(shape)}, not {list(tensor.shape)}")
