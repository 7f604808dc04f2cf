"""The text API of google/gemma_pytorch, and its generation loop as a textbook would print it.

from cabochon.compat import gemma_pytorch

config = gemma_pytorch.get_model_config("270m", dtype="float32")
config.tokenizer = "demo"
model = gemma_pytorch.GemmaForCausalLM(config)
model.load_weights("demo")
model = model.to("cpu").eval()
print(model.generate("The capital of France is", "cpu", output_len=10))

A program written for that project changes its imports: ``gemma.config``, ``gemma.model`` and ``gemma.tokenizer`` are
modules here. ``docs/compat.md`` has the differences; ``model.py`` is the loop. It needs PyTorch (the ``torch`` extra),
which is imported when one of the names below is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cabochon.errors import MissingDependencyError

if TYPE_CHECKING:
    from cabochon.compat.gemma_pytorch.config import (
        Architecture,
        AttentionType,
        GemmaConfig,
        get_model_config,
    )
    from cabochon.compat.gemma_pytorch.from_gguf import get_config_for_gguf, state_dict_from_gguf
    from cabochon.compat.gemma_pytorch.model import GemmaForCausalLM
    from cabochon.compat.gemma_pytorch.sampler import Sampler
    from cabochon.compat.gemma_pytorch.tokenizer import Tokenizer

__all__ = [
    "Architecture",
    "AttentionType",
    "GemmaConfig",
    "GemmaForCausalLM",
    "Sampler",
    "Tokenizer",
    "get_config_for_gguf",
    "get_model_config",
    "state_dict_from_gguf",
]

_MODULES = {
    "Architecture": "config",
    "AttentionType": "config",
    "GemmaConfig": "config",
    "GemmaForCausalLM": "model",
    "Sampler": "sampler",
    "Tokenizer": "tokenizer",
    "get_config_for_gguf": "from_gguf",
    "get_model_config": "config",
    "state_dict_from_gguf": "from_gguf",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependencyError('gemma_pytorch needs PyTorch: pip install "cabochon[torch]"') from error


def __dir__() -> list[str]:
    return __all__
