"""Ways to make the steps of a generation: the cached one, two that must equal it, and controls that must not.

Each is made by what is put into a step and its page tables, and by nothing else: the model runs them all the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from cabochon.trace.by_hand import PagedText
from cabochon.types import StepInput


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the loop: the logits after ``ids`` are wanted, of which the first ``stored`` ran in earlier turns."""

    ids: Sequence[int]
    """The text so far."""
    stored: int
    """0 in the first turn, which runs the whole prompt."""

    @property
    def decodes(self) -> bool:
        """Whether it is not the first."""
        return self.stored > 0


Make = Callable[[PagedText, Turn, "Stranger"], Sequence[StepInput]]
"""The steps of a turn, in order; the last one gives the logits."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Another sequence, for the control that mixes two up."""

    text: PagedText
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to make the steps."""

    name: str
    equal: bool
    """Whether it must give what the cached loop gives."""
    about: str
    make: Make
    reached: Callable[[int, int, Sequence[int | None]], bool]
    """Whether a run of so many prompt ids and turns, on layers with these windows [L], comes to where it differs."""


def _always(prompt: int, turns: int, windows: Sequence[int | None]) -> bool:
    return True


def _decodes(prompt: int, turns: int, windows: Sequence[int | None]) -> bool:
    return turns > 1


def _mixes_up(prompt: int, turns: int, windows: Sequence[int | None]) -> bool:
    return prompt > 1 and turns > 1


def _prompt_has_later_positions(prompt: int, turns: int, windows: Sequence[int | None]) -> bool:
    return prompt > 1 and len(windows) > 1  # in the last layer only the last row looks, and it sees all anyway


def _leaves_a_window(prompt: int, turns: int, windows: Sequence[int | None]) -> bool:
    return any(window is not None and prompt + turns - 1 > window for window in windows)


def _cached(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    return [text.step(turn.ids, turn.stored, len(turn.ids))]


def _no_cache(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    text.forget()
    return [text.step(turn.ids, 0, len(turn.ids))]


def _concat(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    return [text.step(turn.ids, 0, len(turn.ids))]


def _wrong_position(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    step = text.step(turn.ids, turn.stored, len(turn.ids))
    return [replace(step, positions=np.zeros_like(step.positions)) if turn.decodes else step]


def _empty_cache(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    step = text.step(turn.ids, turn.stored, len(turn.ids))
    return [replace(step, first_key=step.last_key) if turn.decodes else step]


def _no_mask(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    step = text.step(turn.ids, turn.stored, len(turn.ids))
    return [replace(step, last_key=np.full_like(step.last_key, step.last_key.max()))]


def _stale_slot(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    step = text.step(turn.ids, turn.stored, len(turn.ids))
    if turn.stored != len(stranger.ids) or turn.stored < 2:
        return [step]
    # The first turn after the prompt: the other sequence, as long as the prompt, writes its last key into our slot.
    other = stranger.text.step(stranger.ids, 0, len(stranger.ids))
    slots, last_key = other.slots.copy(), other.last_key.copy()
    slots[:, -1] = [text.slot(group, len(stranger.ids) - 1) for group in range(len(slots))]
    last_key[:, -1] -= 1  # its own key is elsewhere: it sees those before it
    return [replace(other, slots=slots, last_key=last_key), step]


def _window_off_by_one(text: PagedText, turn: Turn, stranger: Stranger) -> Sequence[StepInput]:
    step = text.step(turn.ids, turn.stored, len(turn.ids))
    first_key = step.first_key.copy()
    for group, kind in enumerate(text.store.layout.groups):
        if kind.window is not None:
            first_key[group] = np.maximum(first_key[group] - 1, 0)
    return [replace(step, first_key=first_key)]


CACHED = Variant(
    "cached", True, "each turn runs what is new: the prompt, then one token with one position", _cached, _always
)

VARIANTS = MappingProxyType(
    {
        variant.name: variant
        for variant in (
            Variant("no-cache", True, "each turn runs the whole text, from pages full of NaN", _no_cache, _always),
            Variant(
                "concat", True, "each turn runs all ids and positions again, over the same cache", _concat, _always
            ),
            Variant("wrong-position", False, "every new token is told position 0", _wrong_position, _decodes),
            Variant("empty-cache", False, "every new token sees its own key only", _empty_cache, _decodes),
            Variant(
                "no-mask", False, "the prompt's rows see the keys after them", _no_mask, _prompt_has_later_positions
            ),
            Variant("stale-slot", False, "one slot holds another sequence's key and value", _stale_slot, _mixes_up),
            Variant(
                "window-off-by-one",
                False,
                "sliding layers see one key more than their window",
                _window_off_by_one,
                _leaves_a_window,
            ),
        )
    }
)
"""By name: the two that must equal the cached loop, then the controls that must not."""
