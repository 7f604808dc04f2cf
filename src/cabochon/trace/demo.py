"""Three recorded runs to look at: a short one, one beyond the window, and a batch of unequal prompts."""

from __future__ import annotations

from collections.abc import Iterator

from cabochon.session.session import Session
from cabochon.trace.record import record
from cabochon.trace.trace import Trace
from cabochon.trace.variants import VARIANTS

SHORT = "The capital of France is"
BATCH = ("The capital of France is", "Once upon a time there was a little", "Water")

LONG = """\
The keeper of the old lighthouse had a rule for every hour of the day. At six he wound the great clock, at seven \
he wiped the salt from the windows, at eight he wrote the weather into a thick grey book. Nobody had ever asked \
to read the book, but he wrote in it all the same, in small upright letters, and never left out a single \
morning.

One spring a girl came up the path from the village. She carried a basket with bread and a jar of honey, and she \
asked what the light was for, now that all the ships had instruments that told them where the rocks were. The \
keeper thought about this for a while. Then he took the grey book from the shelf and opened it somewhere in the \
middle.

"Look," he said. "On this day there was fog, and on this day as well. On the third day a fisherman came in who \
had lost his compass, his lamp and very nearly his boat. He told me that he had steered by the light for two \
hours, and that he had counted the seconds between the flashes so as not to fall asleep. I wrote down his name, \
the wind and the number of herring in his hold. If I had not written it, I would not believe it myself."

The girl read the page twice. Then she turned to the next one, and to the one after that. There were storms in \
the book and long calm weeks, a whale that stayed for an afternoon, a balloon that nobody could explain, and \
once, in the middle of winter, a single line that said only: today the sea was so still that I could hear the \
bells of the town.

"How do you find anything in it?" she asked. "There must be thousands of days."

"I do not look for them," said the keeper. "I know where each day stands, because the book has only one order, \
and I have never torn out a page. When I write a new line I read a few of those before it, sometimes the last \
ones, sometimes one that is years away. What I wrote then does not change when I write more. I only have to be \
able to look back."

She came again the next week, and the week after. When the first snow fell, the keeper gave her the key to the \
tower. She climbed the stairs alone, lit the lamp, and opened the grey book to the first empty page. Then she \
wrote:"""
"""Some 500 tokens: a few more, and the first ones are behind a window of 512."""

CONTEXT = 640
"""Tokens that the runs need room for."""


def demo_runs(session: Session) -> Iterator[tuple[str, Trace]]:
    """The runs and their titles, each when it is done; of the first two all variants are recorded: that takes a minute.

    The session must have been loaded with ``whole_context``, for ``TEXTS`` generations and a context of ``CONTEXT``.
    """
    against = tuple(VARIANTS)
    yield "A short text", record(session, [SHORT], against=against, max_tokens=24, seed=1)
    yield "Beyond the window", record(session, [LONG], against=against, max_tokens=48, seed=3, ignore_eos=True)
    yield "Three unequal prompts", record(session, BATCH, max_tokens=24, temperature=0)
