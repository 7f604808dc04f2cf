"""Work that another thread does while this one goes on."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Calls a function on a thread of its own; the end of the ``with`` waits for it.

    with Meanwhile(build_tokenizer) as tokenizer:
        model = build_model()
    tokenizer.result
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: T
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Meanwhile[T]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.join()

    @property
    def result(self) -> T:
        """What the function returned; raises what it raised. To be asked for after the ``with``."""
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
