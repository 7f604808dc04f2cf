"""Which page group each layer of a model stores its keys and values in."""

from __future__ import annotations

from cabochon.kvcache.groups import KVLayout, group_layers
from cabochon.model.config import GemmaConfig


def kv_layout(config: GemmaConfig) -> KVLayout:
    """Page groups of ``config``: layers with the same window share one."""
    every = config.layers
    return group_layers(config.layer_windows, [config.kv_heads] * every, [config.head_dim] * every)
