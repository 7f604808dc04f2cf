"""From the last hidden state to the next token, in gemma_pytorch's order."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from cabochon.compat.gemma_pytorch.config import GemmaConfig
from cabochon.errors import NumericError
from cabochon.ops.torch import TorchOps


class Sampler(nn.Module):
    """Temperature, softmax, top-p on the whole distribution, top-k, renormalise, draw."""

    def __init__(self, vocab_size: int, config: GemmaConfig) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.softcap = config.final_logit_softcapping

    @torch.no_grad()
    def forward(
        self,
        embedding: Tensor,  # [V, D]
        hidden_states: Tensor,  # [B, L, D]
        output_positions: Tensor,  # [] or [1]: which of the L
        temperatures: Tensor | None,  # [B]; None for the most probable token
        top_ps: Tensor | None,  # [B]; None or 1 keeps all
        top_ks: Tensor | None,  # [B]; None or 0 keeps all
        embedding_bias: Tensor | None = None,  # [V]
    ) -> tuple[Tensor, Tensor]:  # [B], [B, V]
        """The next tokens, drawn with PyTorch's global generator, and the logits, which nothing was done to.

        A temperature of 0 takes the most probable token. Raises ``NumericError`` if a logit is not a finite number.
        """
        last = hidden_states.index_select(1, output_positions).squeeze(1)  # [B, D]; other positions ask for no token
        logits = last @ embedding.T  # [B, V]
        if embedding_bias is not None:
            logits = logits + embedding_bias
        if self.softcap is not None:
            logits = TorchOps.softcap(logits, self.softcap)
        if not logits.amax(dim=-1).isfinite().all():
            raise NumericError(
                "a logit is not a finite number: no weights are loaded, or float16 overflows (use bfloat16 or float32)"
            )
        best = logits.argmax(dim=-1)  # [B]
        if temperatures is None:
            return best, logits

        divisors = torch.where(temperatures > 0, temperatures, 1)[:, None]  # [B, 1]
        shares = (logits.float() / divisors).softmax(dim=-1)  # [B, V], by id
        shares, ids = shares.sort(dim=-1, descending=True, stable=True)  # [B, V] each, by rank
        dropped = torch.zeros_like(shares, dtype=torch.bool)  # [B, V]
        if top_ps is not None:
            before = functional.pad(shares.cumsum(dim=-1)[:, :-1], (1, 0))  # [B, V]: share of all better ones
            dropped |= (before > top_ps[:, None]) & (top_ps[:, None] < 1)
        if top_ks is not None:
            rank = torch.arange(shares.shape[-1], device=shares.device)  # [V]
            dropped |= (rank >= top_ks[:, None]) & (top_ks[:, None] > 0)
        kept = shares.masked_fill(dropped, 0)  # [B, V]
        kept = kept / kept.sum(dim=-1, keepdim=True)
        by_id = torch.zeros_like(kept).scatter(-1, ids, kept)  # [B, V]
        drawn = torch.multinomial(by_id, num_samples=1).squeeze(1)  # [B]
        return torch.where(temperatures > 0, drawn, best), logits
