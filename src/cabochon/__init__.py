"""Cabochon runs Google's Gemma models."""

from __future__ import annotations

from cabochon._version import __version__

__all__ = ["__version__"]
