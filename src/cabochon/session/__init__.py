"""Text in, text out: what the command line, servers and programs use.

with cabochon.load() as session:
    print(session.generate("The capital of France is", max_tokens=20).text)
"""

from __future__ import annotations

from cabochon.session.batch import Outcome
from cabochon.session.loading import load
from cabochon.session.results import Chunk, Generation, SavedConversation, Score, Timings
from cabochon.session.session import Session
from cabochon.session.stream import Stream

__all__ = ["Chunk", "Generation", "Outcome", "SavedConversation", "Score", "Session", "Stream", "Timings", "load"]
