"""The tiny models are what their page says: large enough scores and logits, a vocabulary that text can use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cabochon.errors import UsageError
from cabochon.model.config import GemmaConfig
from cabochon.model.tensors import tensor_specs
from cabochon.testing.tiny import MIXED_TYPES, tiny_config, tiny_config_k, tiny_tensors, tiny_weights
from cabochon.testing.vocabulary import BYTE, CONTROL, EOS, NORMAL, UNK, tiny_vocabulary


def rms(x: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


@pytest.mark.parametrize("config", [tiny_config(), tiny_config_k(), tiny_config(qk_norm=False, post_norms=False)])
@pytest.mark.parametrize("size", [6.0, 50.0])
def test_scores_and_logits_have_the_size_asked_for(config: GemmaConfig, size: float) -> None:
    weights = tiny_weights(config, seed=1, score_scale=size, logit_scale=size)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, config.hidden))
    assert 0.6 < rms((x * weights["final_norm"]) @ weights["embedding"].T) / size < 1.6
    heads = []
    for role in ("query", "key"):
        y = (x * weights["layers.0.attention_norm"]) @ weights[f"layers.0.{role}"].T
        y = y.reshape(200, -1, config.head_dim)
        if config.qk_norm:
            y = y / np.sqrt(np.mean(y * y, axis=-1, keepdims=True)) * weights[f"layers.0.{role}_norm"]
        heads.append(y[:, 0])
    assert 0.5 < rms(config.query_scale * heads[0] @ heads[1].T) / size < 2


def test_weights_belong_to_their_seed() -> None:
    config = tiny_config()
    one, same, other = tiny_weights(config, 1), tiny_weights(config, 1), tiny_weights(config, 2)
    assert list(one) == [spec.name for spec in tensor_specs(config)]
    for name, values in one.items():
        np.testing.assert_array_equal(values, same[name])
        assert (values != other[name]).any()
        assert values.dtype == np.float32
        assert len(np.unique(values)) > values.size // 2


def test_sizes_differ_from_one_another() -> None:
    for config in (tiny_config(), tiny_config_k()):
        sizes = [config.hidden, config.ffn, config.query_size, config.kv_size, config.vocab, config.layers]
        assert len(set(sizes)) == len(sizes)
        assert config.query_scale != config.head_dim**-0.5
        assert config.layer_windows[-1] is not None
        assert len(set(config.layer_ropes)) == 2
    assert {tensor.type.name for tensor in tiny_tensors(config, tiny_weights(config), MIXED_TYPES).values()} == {
        "F32",
        "Q8_0",
        "Q5_0",
        "Q4_K",
        "Q6_K",
    }


def test_vocabulary_can_spell_anything() -> None:
    vocabulary = tiny_vocabulary(367)
    tokens = vocabulary.tokens
    assert len(tokens) == len(set(tokens)) == len(vocabulary.scores) == len(vocabulary.types) == 367
    assert tokens[EOS] == "<eos>"
    assert tokens[UNK] == "<unk>"
    assert vocabulary.types[EOS] == vocabulary.types[-1] == CONTROL
    assert [tokens[i] for i in np.flatnonzero(vocabulary.types == BYTE)] == [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = {tokens[i] for i in np.flatnonzero(vocabulary.types == NORMAL)}
    for piece in pieces:
        assert len(piece) == 1 or any(piece[:i] in pieces and piece[i:] in pieces for i in range(1, len(piece))), piece
    with pytest.raises(UsageError, match="at least 338 tokens"):
        tiny_vocabulary(337)
