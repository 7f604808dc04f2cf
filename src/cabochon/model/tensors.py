"""The declared table of every tensor a model needs: our name, its shape from the config, and what it is for.

Names are ours and the same for every file format, after the fields of ``GemmaWeights`` and ``LayerWeights``:
``embedding``, ``final_norm``, ``head`` (untied models only), and ``layers.N.ROLE``. Matrices are ``(rows, cols)`` =
(outputs, inputs). A norm's gain is what the normed value is multiplied by, nothing added: formats that store it less
one are corrected on reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cabochon.model.config import GemmaConfig

TensorKind = Literal["embedding", "linear", "norm"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One row of the table."""

    name: str
    shape: tuple[int, ...]
    kind: TensorKind

    @property
    def role(self) -> str:
        """The name without its layer: ``query`` for ``layers.3.query``."""
        return self.name.rpartition(".")[2]


def layer_tensor(layer: int, role: str) -> str:
    """Our name of a tensor of one layer: ``layers.3.query``."""
    return f"layers.{layer}.{role}"


def head_name(config: GemmaConfig) -> str:
    """The tensor that turns the last hidden state into logits: the embedding where the head is tied to it."""
    return "embedding" if config.tied_head else "head"


def layer_specs(config: GemmaConfig, layer: int) -> tuple[TensorSpec, ...]:
    """The tensors of one layer, in the order they are used."""
    d, f, e = config.hidden, config.ffn, config.head_dim
    q, kv = config.query_size, config.kv_size
    roles: list[tuple[str, tuple[int, ...], TensorKind]] = [
        ("attention_norm", (d,), "norm"),
        ("query", (q, d), "linear"),
        ("key", (kv, d), "linear"),
        ("value", (kv, d), "linear"),
    ]
    if config.qk_norm:
        roles += [("query_norm", (e,), "norm"), ("key_norm", (e,), "norm")]
    roles.append(("attention_output", (d, q), "linear"))
    if config.post_norms:
        roles.append(("attention_post_norm", (d,), "norm"))
    roles += [
        ("ffn_norm", (d,), "norm"),
        ("gate", (f, d), "linear"),
        ("up", (f, d), "linear"),
        ("down", (d, f), "linear"),
    ]
    if config.post_norms:
        roles.append(("ffn_post_norm", (d,), "norm"))
    return tuple(TensorSpec(layer_tensor(layer, role), shape, kind) for role, shape, kind in roles)


def tensor_specs(config: GemmaConfig) -> tuple[TensorSpec, ...]:
    """Every tensor of the model, in the order they are used."""
    specs = [TensorSpec("embedding", (config.vocab, config.hidden), "embedding")]
    for layer in range(config.layers):
        specs.extend(layer_specs(config, layer))
    specs.append(TensorSpec("final_norm", (config.hidden,), "norm"))
    if not config.tied_head:
        specs.append(TensorSpec("head", (config.vocab, config.hidden), "linear"))
    return tuple(specs)
