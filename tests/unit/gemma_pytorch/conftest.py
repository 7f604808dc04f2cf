"""A tiny random model in this interface, and a tokenizer whose texts are ids, so that no difference hides in a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from cabochon.compat.gemma_pytorch.from_gguf import get_config_for_gguf
from cabochon.compat.gemma_pytorch.model import GemmaForCausalLM
from cabochon.compat.gemma_pytorch.tokenizer import Tokenizer
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf

WINDOW = 8
CONFIG = tiny_config(
    layers=3, pattern=3, window=WINDOW, hidden=32, head_dim=16, ffn=56, query_scale=10**-0.5, context_length=256
)


class Ids(Tokenizer):
    """``encode("7 9")`` is BOS, 7, 9, and ``decode`` the way back; EOS is whatever a test says."""

    def __init__(self, eos_id: int) -> None:
        self.n_words, self.pad_id, self.bos_id, self.eos_id = CONFIG.vocab, 0, 2, eos_id

    def encode(self, s: str, bos: bool = True, eos: bool = False) -> list[int]:
        return [self.bos_id] * bos + [int(word) for word in s.split()] + [self.eos_id] * eos

    def decode(self, t: Sequence[int]) -> str:
        return " ".join(map(str, t))


def text(ids: Sequence[int]) -> str:
    """A prompt that ``Ids`` reads as these ids, behind BOS."""
    return " ".join(map(str, ids))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    # Models this small are slower on several.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # With its blocks as strong as this the model does not only repeat the last token.
    weights = tiny_weights(CONFIG, seed=1)
    strong = {name: w * np.float32(3) for name, w in weights.items() if name.endswith("post_norm")}
    return write_tiny_gguf(tmp_path_factory.mktemp("compat") / "tiny.gguf", CONFIG, weights | strong)


Build = Callable[..., GemmaForCausalLM]


@pytest.fixture(scope="session")
def build(path: Path) -> Build:
    """``build(dtype="float32", eos_id=CONFIG.vocab, **changes of the config)``: the tiny model, its texts being ids."""

    def build(dtype: str = "float32", eos_id: int = CONFIG.vocab, **changes: object) -> GemmaForCausalLM:
        config = get_config_for_gguf(path, dtype)
        for name, value in changes.items():
            setattr(config, name, value)
        model = GemmaForCausalLM(config)
        model.load_weights(path)
        model.tokenizer = Ids(eos_id)
        return model.eval()

    return build


class Calls:
    """What a model's ``forward`` was given and gave back."""

    def __init__(self, model: GemmaForCausalLM) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.positions: list[list[int]] = []
        self.logits: list[torch.Tensor] = []
        self._handle = model.register_forward_hook(self._record)

    def _record(self, _: torch.nn.Module, given: tuple[torch.Tensor, ...], got: tuple[torch.Tensor, ...]) -> None:
        self.shapes.append(tuple(given[0].shape))
        self.positions.append(given[1].tolist())
        self.logits.append(got[1])

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
