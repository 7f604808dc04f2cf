"""From options to a loaded model, with a progress bar where somebody watches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from cabochon.cli.options import EngineOptions, ModelOptions
from cabochon.cli.progress import loading_bar
from cabochon.session import Session, load


def load_session(
    options: ModelOptions,
    *,
    engine: EngineOptions | None = None,
    whole_context: bool = False,
    keep_queries: Iterable[int] | Literal["all"] = (),
) -> Session:
    """The session that the options ask for; raises as ``cabochon.load``."""
    with loading_bar() as progress:
        return load(
            options.model,
            backend=options.backend,
            threads=options.threads,
            context=options.context,
            chunk=options.chunk,
            activations=options.activations,
            kv_type=options.kv_type,
            max_running=1 if engine is None else engine.max_running,
            kv_memory=None if engine is None else engine.kv_memory,
            speculate=0 if engine is None else engine.speculate,
            whole_context=whole_context,
            keep_queries=keep_queries,
            progress=progress,
        )
