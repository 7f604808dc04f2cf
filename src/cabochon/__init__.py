"""Cabochon runs Google's Gemma models.

import cabochon

with cabochon.load() as session:
    print(session.generate("The capital of France is", max_tokens=20).text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cabochon._version import __version__
from cabochon.errors import (
    CabochonError,
    CheckpointError,
    ConstraintError,
    ContextLengthError,
    ConversationError,
    MissingDependencyError,
    NumericError,
    RunError,
    TensorError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from cabochon.session.batch import Outcome
    from cabochon.session.loading import load
    from cabochon.session.results import Chunk, Generation, SavedConversation, Score, Timings
    from cabochon.session.session import Session
    from cabochon.session.stream import Stream
    from cabochon.trace.verify import Verification, verify
    from cabochon.types import SamplingParams, TokenOut

__all__ = [
    "CabochonError",
    "CheckpointError",
    "Chunk",
    "ConstraintError",
    "ContextLengthError",
    "ConversationError",
    "Generation",
    "MissingDependencyError",
    "NumericError",
    "Outcome",
    "RunError",
    "SamplingParams",
    "SavedConversation",
    "Score",
    "Session",
    "Stream",
    "TensorError",
    "Timings",
    "TokenOut",
    "UnsupportedError",
    "UsageError",
    "Verification",
    "__version__",
    "load",
    "verify",
]

# Imported when first asked for: the command line's usage errors and `import cabochon` need none of it.
_LAZY = {
    "Chunk": "cabochon.session",
    "Generation": "cabochon.session",
    "Outcome": "cabochon.session",
    "SamplingParams": "cabochon.types",
    "SavedConversation": "cabochon.session",
    "Score": "cabochon.session",
    "Session": "cabochon.session",
    "Stream": "cabochon.session",
    "Timings": "cabochon.session",
    "TokenOut": "cabochon.types",
    "Verification": "cabochon.trace.verify",
    "load": "cabochon.session",
    "verify": "cabochon.trace.verify",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'cabochon' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
