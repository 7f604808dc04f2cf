"""The page as a file: the same bytes for the same runs, whole, small, and with no text of a trace in its HTML."""

from __future__ import annotations

import json
import re
from base64 import b64decode

import pytest
from tests.web.synthetic import long_trace

from cabochon.errors import UsageError
from cabochon.trace.file import decoded, encoded
from cabochon.trace.page import page
from cabochon.trace.trace import Trace


def test_the_same_runs_give_the_same_page(alone: Trace) -> None:
    again = decoded(encoded(alone).splitlines(), "again")
    assert page([("one", alone)]) == page([("one", again)])


def test_a_page_without_a_run_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one"):
        page([])


def test_a_trace_of_2000_steps_and_62_layers_is_under_3_megabytes() -> None:
    assert len(page([("long", long_trace())]).encode()) < 3e6


def test_nothing_outside_the_file_is_named(alone: Trace) -> None:
    html = page([("</script>", alone)])
    assert html.count("</script>") == 3
    texts = [html, *_modules(html).values()]
    assert not [name for text in texts for name in re.findall(r"https?://[^\"'\s]+", text) if "www.w3.org" not in name]


def test_modules_import_each_other_by_names_of_the_map(alone: Trace) -> None:
    modules = _modules(page([("one", alone)]))
    imported = {
        name for text in modules.values() for name in re.findall(r'^(?:import|\} from) .*?"(.*?)";$', text, re.M)
    }
    assert imported <= set(modules)
    assert imported | {"cabochon/app.js"} == set(modules)


def test_data_never_becomes_html(alone: Trace) -> None:
    for name, text in _modules(page([("one", alone)])).items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text), (
            name
        )


def _modules(html: str) -> dict[str, str]:
    found = re.search(r'<script type="importmap">(.*?)</script>', html)
    assert found is not None
    urls = json.loads(found[1])["imports"]
    return {name: b64decode(url.split(",")[1]).decode() for name, url in urls.items()}
