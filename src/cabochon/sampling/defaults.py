"""How tokens are chosen where a user says nothing: as the model's file asks for, else as Gemma's authors do.

The keys are those that llama.cpp writes, ``general.sampling.temp`` and so on. Mirostat is not implemented: its keys may
be there with values that change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cabochon.errors import CheckpointError, UnsupportedError, UsageError, shown
from cabochon.sampling.params import checked
from cabochon.types import SamplingParams

_PREFIX = "general.sampling."
FILE_FIELDS = MappingProxyType(
    {
        "temp": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "penalty_last_n": "penalty_last_n",
        "penalty_repeat": "repetition_penalty",
        "xtc_probability": "xtc_probability",
        "xtc_threshold": "xtc_threshold",
    }
)
"""Keys, without the prefix, and the parameters they set."""

# Not implemented: the value that switches it off, and the keys that only say how it works when on.
_OFF = MappingProxyType({"mirostat": 0})
_DETAILS = frozenset({"mirostat_tau", "mirostat_eta"})

_LAST_N = "penalty_last_n"
_LAST_N_ALL = -1
_LAST_N_UNSAID = 64
"""What the keys mean by no ``penalty_last_n``."""


def sampling_from_gguf(metadata: Mapping[str, Any]) -> SamplingParams:
    """The parameters that a GGUF file's metadata asks for; what it leaves out is Gemma's.

    Raises ``CheckpointError`` naming the key whose value cannot be, ``UnsupportedError`` for one that asks for what is
    not implemented.
    """
    params = SamplingParams()
    for key, value in metadata.items():
        name = key.removeprefix(_PREFIX)
        if name == key or name in _DETAILS or (name in _OFF and _is(value, _OFF[name])):
            continue
        if name not in FILE_FIELDS:
            raise UnsupportedError(f"metadata {shown(key)} is {shown(value)}, which is not supported")
        if name == _LAST_N and _is(value, _LAST_N_ALL):
            value = 0
        try:
            params = checked(replace(params, **{FILE_FIELDS[name]: value}))
        except UsageError as error:
            raise CheckpointError(f"metadata {key}: {error}") from None
    return _with_window(params, metadata.get(_PREFIX + _LAST_N))


def _with_window(params: SamplingParams, last_n: object) -> SamplingParams:
    """``params`` with the last tokens that a repetition penalty sees as the file means them: 0 is none there."""
    if params.repetition_penalty == 1:
        return replace(params, penalty_last_n=0)
    if last_n is None:
        return replace(params, penalty_last_n=_LAST_N_UNSAID)
    return replace(params, repetition_penalty=1.0) if _is(last_n, 0) else params


def _is(value: object, number: float) -> bool:
    return isinstance(value, int | float) and value == number
