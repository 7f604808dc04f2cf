"""Law 2: a request gives what it gives alone, whatever runs beside it; law 7: nothing is lost on the way."""

from __future__ import annotations

import os

import pytest
from tests.laws.company import run_case
from tests.laws.company_models import MODELS, drawn_model

from cabochon.ops.machine import available_instruction_sets
from cabochon.types import WeightType

CASES = int(os.environ.get("CABOCHON_LAW_CASES", "2000"))
"""Cases in all; ``make laws`` runs more."""

ENOUGH = 2000
"""With so many, each block meets everything."""

BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_company_changes_nothing(block: int) -> None:
    happened = run_case(block)
    for seed in range(block + BLOCKS, CASES, BLOCKS):
        happened.update(run_case(seed))
    # What the law is about did happen, where there are cases enough.
    for event in ("hits", "pauses", "evictions", "loops", "shared", "copied", "scores", "bests"):
        assert happened[event] or CASES < ENOUGH, event


def test_the_models_are_of_every_kind() -> None:
    models = [drawn_model(number) for number in range(MODELS)]
    assert {kind for model in models for kind in model.types.values()} == set(WeightType)
    k_quants = {kind for kind in WeightType if kind.block_values == 256}
    for isa in available_instruction_sets():
        on_it = [model for model in models if model.isa == isa]
        assert {kind for model in on_it for kind in model.types.values()}.issuperset(k_quants), isa
        assert {model.kv_type for model in on_it} == {"f16", "bf16", "f32", "int8"}, isa
        assert {model.threads for model in on_it} == {1, 2}, isa
    configs = [model.config for model in models]
    assert {config.kv_heads for config in configs} == {1, 2, 3}
    assert {config.window for config in configs} >= {None, *range(4, 17)}
    assert any(config.attn_softcap for config in configs)
    assert any(config.final_softcap for config in configs)
    assert any(len(set(config.layer_windows)) == 1 for config in configs), "one group"
    assert any(config.layer_windows[-1] is not None for config in configs), "layers end within the pattern"
