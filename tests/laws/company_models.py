"""The random tiny models of ``company.py``: of every weight type, cache type, instruction set and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from cabochon.kvcache.pages import plan_pages
from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.model.layout import kv_layout
from cabochon.model.model import Model
from cabochon.model.native_model import build_native_model
from cabochon.model.tensors import tensor_specs
from cabochon.model.torch_model import build_torch_model
from cabochon.ops.machine import available_instruction_sets
from cabochon.testing.tiny import tiny_config, tiny_tensors, tiny_weights
from cabochon.types import KVType, WeightType

MODELS = 60
"""So many random models are drawn from."""

CONTEXT = 160
VOCAB = 131
MOST_ROWS = 96
SPARE = 14
"""Pages of each group that an engine may have beyond the least."""

KV_TYPES: tuple[KVType, ...] = ("f16", "bf16", "f16", "f32", "int8")

_SLOW = ("portable", "avx512-emulated")

K = 256
"""Values in a block of a K-quant."""


@dataclass(frozen=True, slots=True)
class DrawnModel:
    """What a model is to be."""

    number: int
    config: GemmaConfig
    types: Mapping[str, WeightType]
    """By role."""
    kv_type: KVType
    threads: int
    isa: str


@cache
def drawn_model(number: int) -> DrawnModel:
    """One of the random models. In every third some matrices have rows for K-quants; on the best instruction set these
    models are wide, and all have. (An emulated set takes two milliseconds for a row of a wide model.)"""
    draw = Random(1000 + number)
    sets = available_instruction_sets()
    of_three, kind = divmod(number, 3)
    turn, isa = of_three // len(sets), sets[(of_three + kind) % len(sets)]
    long_rows = kind == 0
    wide = long_rows and isa == sets[0]
    capped = draw.random() < 0.3
    kv_heads = draw.choice([1, 2] if long_rows else [1, 2, 3])
    heads, head_dim = draw.choice([(8, 32), (4, 64), (2, 128)]) if long_rows else (kv_heads * draw.choice([1, 2]), 32)
    config = tiny_config(
        layers=draw.choice([1, 2, 3] if wide else [1, 2, 3, 4, 5]),
        pattern=draw.choice([1, 2, 3, 6]),
        window=4 + number % 13 if number % 10 < 7 else draw.randint(17, 50),
        hidden=K if wide else 32,
        ffn=K if long_rows else 64,
        vocab=VOCAB,
        head_dim=head_dim,
        heads=heads,
        kv_heads=kv_heads,
        tied_head=draw.random() < 0.7,
        attn_softcap=draw.choice([8.0, 50.0]) if capped else None,
        final_softcap=draw.choice([8.0, 30.0]) if capped else None,
    )
    return DrawnModel(
        number,
        config,
        {**_drawn_types(draw, config), **(_k_types(turn) if long_rows else {})},
        kv_type=KV_TYPES[(turn + kind) % len(KV_TYPES)],
        threads=1 + (turn + kind) % 2,
        isa=isa,
    )


def _drawn_types(draw: Random, config: GemmaConfig) -> dict[str, WeightType]:
    """A type for each role: one for all that can have it, or each its own."""
    widths = {spec.role: spec.shape[-1] for spec in tensor_specs(config) if spec.kind != "norm"}
    main, mixed = draw.choice(list(WeightType)), draw.random() < 0.5
    types = {}
    for role, width in widths.items():
        fitting = [kind for kind in WeightType if width % kind.block_values == 0]
        types[role] = draw.choice(fitting) if mixed or main not in fitting else main
    return types


def _k_types(turn: int) -> dict[str, WeightType]:
    """Types of the matrices with long rows: in three turns each comes once."""
    kinds = [kind for kind in WeightType if kind.block_values == K]
    return {role: kinds[(turn + shift) % len(kinds)] for role, shift in (("down", 0), ("attention_output", 3))}


def drawn_number(draw: Random) -> int:
    """Any of the models; those whose instruction set takes times as long come less often."""
    number = draw.randrange(MODELS)
    return drawn_number(draw) if drawn_model(number).isa in _SLOW and draw.random() < 0.6 else number


@cache
def native_model(number: int) -> Model:
    """A drawn model on the native core."""
    drawn = drawn_model(number)
    return build_native_model(
        drawn.config,
        tiny_tensors(drawn.config, tiny_weights(drawn.config, seed=number), drawn.types),
        _store(drawn.config, drawn.kv_type),
        threads=drawn.threads,
        isa=drawn.isa,
        max_rows=MOST_ROWS,
    )


@cache
def torch_model(number: int) -> Model:
    """A model of the same shape on PyTorch, its weights, keys and values in float32; two threads would mostly wait."""
    drawn = drawn_model(number)
    weights = tiny_weights(drawn.config, seed=number)
    return build_torch_model(drawn.config, weights.__getitem__, _store(drawn.config, "f32"), threads=1)


def _store(config: GemmaConfig, kv_type: KVType) -> KVStore:
    layout = kv_layout(config)
    pages = [count + SPARE for count in plan_pages(layout.groups, CONTEXT, MOST_ROWS)]
    return KVStore(layout, pages, kv_type)
