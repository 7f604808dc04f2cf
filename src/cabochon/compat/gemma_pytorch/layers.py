"""Gemma 3's layers as PyTorch modules, whose parameters have gemma_pytorch's names.

Shapes: B rows of the batch, L positions of this call, S slots of the KV cache, D hidden, H query heads, G key/value
heads, E head_dim, F ffn, V vocabulary. Activations have the weights' type; norms, rotation and softmax are done in
float32 and rounded to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from cabochon.compat.gemma_pytorch.config import AttentionType, GemmaConfig
from cabochon.ops.torch import TorchOps, rotate


class Linear(nn.Module):
    """A matrix [out_features, in_features]."""

    def __init__(self, in_features: int, out_features: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features]."""
        return x @ self.weight.T


class Embedding(nn.Module):
    """A vector for every token id: [V, D]."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim, dtype=dtype), requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, L] to [B, L, D]."""
        return self.weight[ids]


class RMSNorm(nn.Module):
    """Divides by the root mean square over the last axis and multiplies by ``1 + weight``."""

    def __init__(self, dim: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(dim, dtype=dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] to the same; rounded to the type of ``x`` at the very end."""
        return TorchOps.rms_norm(x.float(), 1 + self.weight.float(), self.eps).type_as(x)


class GemmaMLP(nn.Module):
    """The gated feed-forward network."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        D, F, dtype = config.hidden_size, config.intermediate_size, config.get_dtype()
        self.gate_proj = Linear(D, F, dtype)
        self.up_proj = Linear(D, F, dtype)
        self.down_proj = Linear(F, D, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, D] to the same."""
        gate_up = torch.cat([self.gate_proj(x), self.up_proj(x)], dim=-1)  # [B, L, 2F]
        down: Tensor = self.down_proj(TorchOps.gated_gelu(gate_up))  # [B, L, D]
        return down


class GemmaAttention(nn.Module):
    """Attention over the KV cache, in which this call's keys and values are stored first."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        H, G, E = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        D, eps, dtype = config.hidden_size, config.rms_norm_eps, config.get_dtype()
        self.heads = (H, G, E)
        self.scaling = (config.query_pre_attn_scalar or E) ** -0.5
        self.softcap = config.attn_logit_softcapping
        self.qkv_proj = Linear(D, (H + 2 * G) * E, dtype)
        self.o_proj = Linear(H * E, D, dtype)
        self.query_norm = RMSNorm(E, eps, dtype)
        self.key_norm = RMSNorm(E, eps, dtype)

    def forward(
        self,
        x: Tensor,  # [B, L, D]
        angles: Tensor,  # [L, E/2]
        kv_write_indices: Tensor,  # [L]
        kv_cache: tuple[Tensor, Tensor],  # [B, S, G, E] each
        mask: Tensor,  # [1, 1, L, S]
    ) -> Tensor:  # [B, L, D]
        """What each of the L positions takes from the slots that ``mask`` lets it see."""
        H, G, E = self.heads
        B, L, _ = x.shape
        qkv = self.qkv_proj(x).view(B, L, H + 2 * G, E)  # [B, L, H+2G, E]
        q, k, v = qkv.split([H, G, G], dim=2)  # [B, L, H, E], [B, L, G, E], [B, L, G, E]
        q, k = self.query_norm(q), self.key_norm(k)

        # A key is rotated once, for its own position, and stored so: no later step needs to know where it stood.
        q = rotate(q.float(), angles).type_as(x)  # [B, L, H, E]
        k = rotate(k.float(), angles).type_as(x)  # [B, L, G, E]
        keys, values = kv_cache  # [B, S, G, E] each
        keys.index_copy_(1, kv_write_indices, k)
        values.index_copy_(1, kv_write_indices, v)

        # The L queries meet the keys of all S slots: those just stored, and those of every step before.
        q = (q * self.scaling).view(B, L, G, H // G, E)  # query head h reads key/value head h // (H/G)
        scores = torch.einsum("blgje,bsge->bgjls", q, keys)  # [B, G, H/G, L, S]
        if self.softcap is not None:
            scores = TorchOps.softcap(scores, self.softcap)
        scores = scores.float() + mask[:, :, None]  # [B, G, H/G, L, S]
        share = scores.softmax(dim=-1).type_as(x)  # [B, G, H/G, L, S]
        mixed = torch.einsum("bgjls,bsge->blgje", share, values)  # [B, L, G, H/G, E]
        out: Tensor = self.o_proj(mixed.flatten(2))  # [B, L, D]
        return out


class Gemma2DecoderLayer(nn.Module):
    """One layer of Gemma 2 and 3: each branch is normed on its way in and on its way out."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        D, eps, dtype = config.hidden_size, config.rms_norm_eps, config.get_dtype()
        self.self_attn = GemmaAttention(config)
        self.mlp = GemmaMLP(config)
        self.input_layernorm = RMSNorm(D, eps, dtype)
        self.post_attention_layernorm = RMSNorm(D, eps, dtype)
        self.pre_feedforward_layernorm = RMSNorm(D, eps, dtype)
        self.post_feedforward_layernorm = RMSNorm(D, eps, dtype)

    def forward(
        self, h: Tensor, angles: Tensor, kv_write_indices: Tensor, kv_cache: tuple[Tensor, Tensor], mask: Tensor
    ) -> Tensor:
        """The residual stream [B, L, D] after the layer; other shapes as in ``GemmaAttention``."""
        mixed = self.self_attn(self.input_layernorm(h), angles, kv_write_indices, kv_cache, mask)  # [B, L, D]
        h = h + self.post_attention_layernorm(mixed)  # [B, L, D]
        turned = self.mlp(self.pre_feedforward_layernorm(h))  # [B, L, D]
        out: Tensor = h + self.post_feedforward_layernorm(turned)  # [B, L, D]
        return out


class GemmaModel(nn.Module):
    """All layers and the last norm."""

    def __init__(self, config: GemmaConfig) -> None:
        super().__init__()
        self.layer_types = config.layer_types()
        self.layers = nn.ModuleList(Gemma2DecoderLayer(config) for _ in self.layer_types)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, config.get_dtype())

    def forward(
        self,
        h: Tensor,  # [B, L, D]
        angles: Mapping[AttentionType, Tensor],  # [L, E/2] each
        kv_write_indices: Tensor,  # [L]
        kv_caches: Sequence[tuple[Tensor, Tensor]],  # per layer, [B, S, G, E] each
        masks: Mapping[AttentionType, Tensor],  # [1, 1, L, S] each
    ) -> Tensor:  # [B, L, D]
        """Hidden states, normed, of the L positions."""
        for kind, layer, kv_cache in zip(self.layer_types, self.layers, kv_caches, strict=True):
            h = layer(h, angles[kind], kv_write_indices, kv_cache, masks[kind])  # [B, L, D]
        normed: Tensor = self.norm(h)
        return normed
