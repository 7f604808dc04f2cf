"""A model's weights, gathered by name into the structure ``gemma.py`` reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from cabochon.model.config import GemmaConfig
from cabochon.model.gemma import GemmaWeights, LayerWeights
from cabochon.model.tensors import head_name, layer_tensor

W = TypeVar("W")


def gather_weights(config: GemmaConfig, get: Callable[[str], W]) -> GemmaWeights[W]:
    """All weights, each asked for once from ``get`` by our name; a tied head is the embedding itself."""
    embedding = get("embedding")
    roles = [role.name for role in fields(LayerWeights)]
    layers = tuple(
        LayerWeights(**{role: get(layer_tensor(layer, role)) for role in roles}) for layer in range(config.layers)
    )
    final_norm = get("final_norm")
    return GemmaWeights(embedding, layers, final_norm, embedding if config.tied_head else get(head_name(config)))
