"""Recorded runs as one HTML file that needs nothing else: no network, no server, no model.

``web/page.html`` is the frame. Four marks in it are filled:

- ``<!-- policy -->``, before any script: what the page may do, so that nothing runs but its own modules.
- ``<!-- style -->``: the style sheets in ``web``.
- ``<!-- modules -->``: an import map by which ``cabochon/NAME.js`` is the file of that name in ``web``, as a data URL.
  A page opened from a file may not import its neighbours, but may import these.
- ``<!-- runs -->``: the traces as JSON, compressed and in base64, so that no text of theirs is ever read as HTML.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

from cabochon.errors import UsageError
from cabochon.trace.trace import End, Header, Part, Step, Trace, VariantRun

_INLINE = re.compile(r"<script(?: type=\"(?:module|importmap)\")?>(.*?)</script>", re.DOTALL)


class _Run(Part, frozen=True):
    """One run as the page's modules read it (``web/run.js``)."""

    title: str
    header: Header
    steps: tuple[Step, ...]
    variants: tuple[VariantRun, ...]
    end: End
    pieces: dict[int, str]
    """Text of every id that the trace names."""


class _Runs(Part, frozen=True):
    runs: tuple[_Run, ...]


def page(runs: Sequence[tuple[str, Trace]]) -> str:
    """The page that shows these runs, each with its title. The same runs give the same page.

    Raises ``UsageError`` if there is none.
    """
    if not runs:
        raise UsageError("a page needs at least one recorded run")
    web = files("cabochon.trace") / "web"
    style = "\n".join(file.read_text("utf-8") for file in _files(web, ".css"))
    filled = _filled(
        (web / "page.html").read_text("utf-8"),
        style=f"<style>\n{style}</style>",
        modules=f'<script type="importmap">{_import_map(web)}</script>',
        runs=f'<script type="application/octet-stream" id="runs">{_packed(runs)}</script>',
    )
    return _filled(filled, policy=f'<meta http-equiv="Content-Security-Policy" content="{_policy(filled)}">')


def _filled(frame: str, **parts: str) -> str:
    for name, part in parts.items():
        mark = f"<!-- {name} -->"
        assert frame.count(mark) == 1, mark
        frame = frame.replace(mark, part)
    return frame


def _files(web: Traversable, ending: str) -> list[Traversable]:
    return sorted((file for file in web.iterdir() if file.name.endswith(ending)), key=lambda file: file.name)


def _import_map(web: Traversable) -> str:
    modules = _files(web, ".js")
    urls = {f"cabochon/{file.name}": f"data:text/javascript;base64,{_base64(file.read_bytes())}" for file in modules}
    return json.dumps({"imports": urls})


def _packed(runs: Sequence[tuple[str, Trace]]) -> str:
    every = _Runs(tuple(_Run(title, t.header, t.steps, t.variants, t.end, t.pieces) for title, t in runs))
    return _base64(gzip.compress(msgspec.json.encode(every), mtime=0))


def _policy(html: str) -> str:
    """What the page may do: run its own scripts and styles, and nothing that came in with a text; ask for nothing."""
    return f"default-src 'none'; script-src data: {' '.join(_hashes(html))}; style-src 'unsafe-inline'"


def _hashes(html: str) -> Iterator[str]:
    for script in _INLINE.findall(html):
        yield f"'sha256-{_base64(sha256(script.encode()).digest())}'"


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
