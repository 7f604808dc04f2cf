"""Cached generation, as short as it can be written: ``GemmaForCausalLM.generate``.

The first call of the model takes all ids of a prompt. Every later one takes **one id and one position**. Why does that
suffice?

- The next token depends on the earlier ones only through their keys and values, layer by layer. Those are in
  ``kv_caches``: each was computed when its token was put in, does not depend on later ones, and so never changes.
  The new token's query meets all of them (``GemmaAttention``). Nothing is forgotten; it is only not computed again.
- A position is where a token stands in the text, not a list that has to grow. It turns the token's own query and key,
  once. Earlier keys were turned when they were stored.
- Queries are not kept, for nobody asks for them again: of each position only its key and value are used later.

Position, slot and mask row are three different things: the place in the text, the place in the cache where key and
value are stored (``kv_write_indices``), and which slots the query may see (``mask``). In this loop the numbers agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cabochon.compat.gemma_pytorch import checks
from cabochon.compat.gemma_pytorch.config import AttentionType, GemmaConfig
from cabochon.compat.gemma_pytorch.from_gguf import is_gguf, state_dict_from_gguf
from cabochon.compat.gemma_pytorch.layers import (
    Embedding,
    Gemma2DecoderLayer,
    GemmaAttention,
    GemmaMLP,
    GemmaModel,
    Linear,
    RMSNorm,
)
from cabochon.compat.gemma_pytorch.loading import fitted, read_checkpoint
from cabochon.compat.gemma_pytorch.sampler import Sampler
from cabochon.compat.gemma_pytorch.tokenizer import Tokenizer
from cabochon.errors import TensorError, UsageError
from cabochon.ops.protocol import Rope
from cabochon.ops.rope import inverse_frequencies
from cabochon.sampling.params import whole_number

__all__ = [
    "Embedding",
    "Gemma2DecoderLayer",
    "GemmaAttention",
    "GemmaForCausalLM",
    "GemmaMLP",
    "GemmaModel",
    "Linear",
    "RMSNorm",
    "Sampler",
    "visible",
]


class GemmaForCausalLM(nn.Module):
    """A Gemma 3 that reads and writes text. Weights are not set until ``load_weights`` or ``load_state_dict``.

    Shapes: B prompts, L positions of one call, S slots of the cache, D hidden, G key/value heads, E head_dim,
    V vocabulary.
    """

    def __init__(self, config: GemmaConfig) -> None:
        """Raises ``UsageError`` for a config that cannot be, ``CheckpointError`` if its tokenizer cannot be read."""
        super().__init__()
        config.check()
        self.config = config
        self.tokenizer = None if config.tokenizer is None else Tokenizer(config.tokenizer)
        if self.tokenizer is not None and self.tokenizer.n_words > config.vocab_size:
            raise UsageError(
                f"the tokenizer has {self.tokenizer.n_words} tokens, config.vocab_size {config.vocab_size}"
            )
        self.embedder = Embedding(config.vocab_size, config.hidden_size, config.get_dtype())
        self.model = GemmaModel(config)
        self.sampler = Sampler(config.vocab_size, config)
        # Not a buffer: model.to(dtype) would round it, and rotations with it.
        self._inverse_frequencies = {kind: _inverse_frequencies(config, kind) for kind in set(config.layer_types())}

    @torch.no_grad()
    def generate(
        self,
        prompts: str | Sequence[str],
        device: str | torch.device,
        output_len: int = 100,
        temperature: float | None = 1.0,
        top_p: float | None = 0.95,
        top_k: int | None = 64,
    ) -> str | list[str]:
        """At most ``output_len`` tokens after each prompt, up to EOS, as text: one for a ``str``, else a list.

        Without a temperature (None or 0) the most probable token is taken. ``device`` is where the model is.

        Raises:
            UsageError: an argument cannot be; the message names it.
            ContextLengthError: a prompt and ``output_len`` are longer than ``config.max_position_embeddings``.
            NumericError: a logit is not a finite number.
        """
        tokenizer = self._tokenizer()
        rows = [tokenizer.encode(text) for text in checks.prompt_list(prompts)]
        device = checks.checked_device(device, self.embedder.weight.device)
        output_len = whole_number("output_len", output_len, at_least=0)
        B, shortest, longest = len(rows), min(map(len, rows)), max(map(len, rows))
        checks.check_length(longest, output_len, self.config)
        temperatures, top_ps, top_ks = checks.sampling_tensors(
            B, temperature, top_p, top_k, device
        )  # [B] each, or None
        S = longest + output_len

        tokens = torch.full((B, S), tokenizer.pad_id, device=device)  # [B, S]
        for row, prompt in enumerate(rows):
            tokens[row, : len(prompt)] = torch.tensor(prompt)
        lengths = torch.tensor([len(prompt) for prompt in rows], device=device)  # [B]
        finished = torch.full((B,), output_len == 0, device=device)  # [B]
        kv_caches = self.empty_caches(B, S)  # per layer, keys and values [B, S, G, E]

        # Prefill: everything up to where the shortest prompt ends, in one call.
        ids = tokens[:, :shortest]  # [B, L], L = shortest
        positions = torch.arange(shortest, device=device)  # [L]
        for index in range(shortest, S):
            if finished.all():
                break
            held = [(keys[:, :index], values[:, :index]) for keys, values in kv_caches]  # slots of the text so far
            chosen, _ = self(
                ids,
                positions,
                kv_write_indices=None,  # slot = position
                kv_caches=held,
                mask=visible(positions, index),  # [1, 1, L, index]
                output_positions=torch.tensor([ids.shape[1] - 1], device=device),  # [1]; the last of the L
                temperatures=temperatures,
                top_ps=top_ps,
                top_ks=top_ks,
                local_mask=visible(positions, index, self.config.sliding_window_size),  # [1, 1, L, index]
            )  # [B]
            # A longer prompt knows better than the model what comes next: the choice is dropped.
            is_given = index < lengths  # [B]
            tokens[:, index] = torch.where(is_given, tokens[:, index], chosen)
            is_last = (tokens[:, index] == tokenizer.eos_id) | (index + 1 >= lengths + output_len)  # [B]
            finished |= ~is_given & is_last
            # Decode: one id a row, and its position. The rest of the text is in the caches.
            ids = tokens[:, index : index + 1]  # [B, L], L = 1
            positions = positions[-1:] + 1  # [L]

        answers = [
            _up_to(tokenizer.eos_id, row[length : length + output_len])
            for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)
        ]
        texts = [tokenizer.decode(answer) for answer in answers]
        return texts[0] if isinstance(prompts, str) else texts

    @torch.no_grad()
    def forward(
        self,
        input_token_ids: Tensor,  # [B, L]
        input_positions: Tensor,  # [L]: where these tokens stand in the text
        kv_write_indices: Tensor | None,  # [L]: the slots their keys and values are stored in; None for the positions
        kv_caches: Sequence[tuple[Tensor, Tensor]],  # per layer, keys and values [B, S, G, E]; written to
        mask: Tensor,  # [1, 1, L, S], added to scores: 0 for a slot that is seen
        output_positions: Tensor,  # [] or [1]: the one of the L that a next token is wanted of
        temperatures: Tensor | None,  # [B]; None for the most probable token
        top_ps: Tensor | None,  # [B]
        top_ks: Tensor | None,  # [B]
        local_mask: Tensor | None = None,  # [1, 1, L, S], for sliding layers; not needed while S <= window
        **kwargs: object,
    ) -> tuple[Tensor, Tensor]:  # [B], [B, V]
        """One step: the next tokens, and the logits they were chosen from. Shapes are checked, values are not.

        Raises ``UsageError`` naming an argument of the wrong shape, or one that is not known; ``NumericError`` if a
        logit is not a finite number.
        """
        slots = input_positions if kv_write_indices is None else kv_write_indices  # [L]
        checks.check_forward(
            self.config, input_token_ids, input_positions, slots, kv_caches, mask, local_mask, list(kwargs)
        )
        angles = {
            kind: input_positions[:, None].float() * frequencies.to(input_positions.device)
            for kind, frequencies in self._inverse_frequencies.items()
        }  # [L, E/2] each
        masks = {
            AttentionType.GLOBAL: mask,
            AttentionType.LOCAL_SLIDING: mask if local_mask is None else local_mask,
        }  # [1, 1, L, S] each
        h = self.embedder(input_token_ids)  # [B, L, D]
        # The scale is rounded to the type of activations, as it was in training.
        h = h * torch.tensor(self.config.hidden_size**0.5, dtype=h.dtype)  # [B, L, D]
        h = self.model(h, angles, slots, kv_caches, masks)  # [B, L, D]
        next_tokens, logits = self.sampler(
            self.embedder.weight, h, output_positions, temperatures, top_ps, top_ks
        )  # [B], [B, V]
        return next_tokens, logits

    def empty_caches(self, batch: int, slots: int) -> list[tuple[Tensor, Tensor]]:
        """For each layer zeros for keys and for values, [batch, slots, G, E], of the weights' type and device."""
        shape = (batch, slots, self.config.num_key_value_heads, self.config.head_dim)
        weight = self.embedder.weight
        return [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in self.model.layers]

    def load_weights(self, model_path: str | Path) -> None:
        """Loads a ``.ckpt`` file, a directory with ``pytorch_model.bin.index.json``, a GGUF file, or ``demo``.

        Strictly: tables of rotations are dropped, and the image part of a larger model; else every tensor must be
        there, in its shape, and none left over. Raises ``TensorError`` naming one that is not so, ``CheckpointError``
        if nothing of these kinds is there.
        """
        gguf = is_gguf(model_path)
        state = state_dict_from_gguf(model_path, self.embedder.weight.dtype) if gguf else read_checkpoint(model_path)
        try:
            self.load_state_dict(state)
        except TensorError as error:
            raise TensorError(f"{model_path}: {error}") from None

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As PyTorch's, with the rules of ``load_weights``; raises ``UsageError`` for ``strict=False``."""
        if not strict:
            raise UsageError("load_state_dict: strict=False would leave weights unset without a word; leave it out")
        tensors = fitted(state_dict, self.state_dict(), quantized=self.config.quant)
        return super().load_state_dict(tensors, strict=True, assign=assign)

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise UsageError("generate needs a tokenizer: set config.tokenizer before the model is made")
        return self.tokenizer


def visible(positions: Tensor, slots: int, window: int | None = None) -> Tensor:
    """What is added to the scores of queries at ``positions`` [L]: 0 for slots they see, else -inf; [1, 1, L, slots].

    Slot s holds position s. A query sees itself and what is before it; with a ``window`` only so many of these.
    """
    behind = positions[:, None] - torch.arange(slots, device=positions.device)  # [L, S]: how far back a slot is
    seen = behind >= 0  # [L, S]
    if window is not None:
        seen &= behind < window
    return torch.where(seen, 0.0, -torch.inf)[None, None]


def _inverse_frequencies(config: GemmaConfig, kind: AttentionType) -> Tensor:
    """Angles per position of one kind of layer, in float32 whatever the model's type: [E/2]."""
    factor = config.rope_scaling_factor if kind == AttentionType.GLOBAL else None
    return torch.from_numpy(inverse_frequencies(Rope(config.rope_wave_length[kind], factor or 1.0), config.head_dim))


def _up_to(end: int, ids: list[int]) -> list[int]:
    """``ids`` before the first ``end``."""
    return ids[: ids.index(end)] if end in ids else ids
