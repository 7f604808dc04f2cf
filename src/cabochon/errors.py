"""Every error Cabochon raises on purpose, as one tree.

    CabochonError
    ├── UsageError            what was asked for cannot be (a bad option, an empty prompt): exit code 2
    │   └── ContextLengthError    prompt and context do not fit together
    └── RunError              what was asked for failed (a bad file, missing package): exit code 1
        ├── CheckpointError       a file cannot be read as a model
        │   ├── TensorError           one named tensor is missing, left over or malformed
        │   └── UnsupportedError      well-formed, but of a kind that is not implemented
        ├── ConversationError     a saved conversation cannot be written, read or used here
        ├── TraceError            a recorded trace cannot be written or read
        ├── QueueFullError        too much is waiting already: try again later
        ├── MissingDependencyError  an optional package is needed
        ├── ConstraintError       no token is left that may be chosen
        └── NumericError          the arithmetic left its range

A message is one line; it names the thing and, where there is one, the remedy.
"""

from __future__ import annotations

from reprlib import Repr

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def shown(value: object) -> str:
    """What a user gave, fit for a message: its ``repr`` on one line, cut where it is long."""
    return " ".join(_SHORT.repr(value).split())[:200]


class CabochonError(Exception):
    """Base of all errors raised on purpose. ``str(error)`` is one line fit for a user."""


class UsageError(CabochonError):
    """The request itself is not valid; nothing was started."""


class ContextLengthError(UsageError):
    """The prompt does not fit the context."""


class RunError(CabochonError):
    """A valid request could not be carried out."""


class CheckpointError(RunError):
    """The file or directory cannot be read as a model."""


class TensorError(CheckpointError):
    """A named tensor is missing, left over, of the wrong shape, or out of the file's bounds."""


class UnsupportedError(CheckpointError):
    """The file is sound, but its architecture, tensor type or feature is not implemented."""


class ConversationError(RunError):
    """A file of a conversation cannot be written; or it is none, damaged, or of another model or way to run it."""


class TraceError(RunError):
    """A file of a trace cannot be written; or it is none, damaged, cut off, or of another version."""


class QueueFullError(RunError):
    """As many requests or tokens wait already as may; the same request may be taken later."""


class MissingDependencyError(RunError):
    """An optional package is needed; the message names the extra that brings it."""


class ConstraintError(RunError):
    """A constraint gave what is no mask of the vocabulary, or nothing is left that may be chosen."""


class NumericError(RunError):
    """A value left the range of its type (an overflow of the KV cache, a logit that is not a number)."""
