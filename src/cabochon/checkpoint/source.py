"""Which file a user means."""

from __future__ import annotations

from pathlib import Path

from cabochon.checkpoint.demo import DEMO, Progress, demo_model
from cabochon.checkpoint.gguf_format import printable
from cabochon.errors import CheckpointError, UsageError, shown


def find_model(model: str | Path, *, progress: Progress | None = None) -> Path:
    """The file of ``model``: a path, a directory with one GGUF file in it, or the name ``demo``.

    The name goes before a file that is called so; ``./demo`` is the file. Raises ``CheckpointError`` if there is
    nothing there, or more than one model, ``UsageError`` for an empty name; errors of the demo as ``demo_model``.
    """
    if not isinstance(model, str | Path):
        raise UsageError(f"a model must be a path or a name, not {shown(model)}")
    if model == DEMO:
        return demo_model(progress=progress)
    if model == "":
        raise UsageError(f"the model's name is empty; give a path, or {DEMO}")
    path = Path(model)
    try:
        if not path.exists():
            raise CheckpointError(
                f"{printable(str(path), 4096)}: no such file or directory; the only model known by name is {DEMO}"
            )
        if not path.is_dir():
            return path
        found = sorted(file for file in path.iterdir() if file.suffix == ".gguf" and file.is_file())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from None
    if not found:
        raise CheckpointError(f"{path}: a directory without a model (no .gguf file)")
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:5])
        raise CheckpointError(f"{path}: a directory with {len(found)} models; name one of them ({names})")
    return found[0]
