from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from cabochon.trace.file import decoded, load, save
from cabochon.trace.trace import Trace

ASK = ("trace", "--ids", "2,9,10,11", "--max-tokens", "5", "--seed", "3", "--ignore-eos", "--context", "64")


@pytest.fixture
def saved(run: Run, tiny: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    assert run(*ASK, "--model", tiny, "--save", path).code == 0
    return path


def test_every_step_is_shown(run: Run, tiny: Path) -> None:
    shown = run(*ASK, "--model", tiny)
    lines = shown.out.splitlines()
    assert shown.code == 0
    steps = [line for line in lines if line.lstrip()[:1].isdigit() and " position " in line]
    assert [line.split()[:4] for line in steps] == [
        ["0", "prefill", "position", "0-3"],
        *([str(n), "decode", "position", str(n + 3)] for n in range(1, 5)),
    ]
    assert all(" slots 0:" in line and " keys 0-" in line for line in steps)
    assert sum("falls on" in line for line in lines) == 5
    assert any(line.split() == ["tokens", "run", "8", "30", "3.8", "times"] for line in lines)
    assert "The native core, which counts while it runs, counted the same." in lines
    assert "Every position was written once in every layer, and every row read exactly the keys of its window." in lines


def test_a_step_is_shown_whole(run: Run, tiny: Path) -> None:
    shown = run(*ASK, "--model", tiny, "--step", "2", "--top-k", "9", "--top-p", "0.8")
    lines = shown.out.splitlines()
    assert "  position 5" in lines
    assert any(line.startswith("  mask row global layers: keys 0-5, 6 of them") for line in lines)
    table = [line for line in lines if line.rstrip().endswith(")") and "choice" not in line]
    assert len(table) >= 50
    assert sum(line.lstrip().startswith(">") for line in table) == 1
    assert sum(" top_k " in line for line in table) >= 41
    assert run(*ASK, "--model", tiny, "--step", "5").error_line(2) == (
        "error: there is no step 5; the run has the steps 0 to 4\n"
    )


def test_several_prompts_run_together(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab")
    ask = ("trace", "--file", tmp_path / "a.txt", "--ids", "2,9,10", "abc", "--max-tokens", "3", "--temperature", "0")
    shown = run(*ask, "--ignore-eos", "--context", "64", "--model", tiny, "--json")
    trace = decoded(shown.out.encode().splitlines(), "out")
    assert len(trace.header.prompts) == 3
    assert {len(step.shares) for step in trace.steps} == {3}
    text = run(*ask, "--ignore-eos", "--context", "64", "--model", tiny).out
    assert "sequence 2: " in text
    assert "Text 2: " in text


def test_variants_are_recorded(run: Run, tiny: Path) -> None:
    shown = run(*ASK, "--model", tiny, "--against", "no-cache,empty-cache")
    assert shown.out.splitlines()[-2:] == ["no-cache: identical bits", "empty-cache: broken"]


def test_attention_is_shown(run: Run, tiny: Path) -> None:
    shown = run(*ASK, "--model", tiny, "--attention", "1,0", "--step", "1")
    lines = [line.split() for line in shown.out.splitlines() if " looks at " in line]
    assert [(line[1], line[3], line[6]) for line in lines] == [
        (layer, head, "4") for layer in ("0", "1") for head in ("0", "1", "2", "3")
    ]
    assert "looks at" in run(*ASK, "--model", tiny, "--attention", "all", "--step", "0").out


def test_a_saved_trace_needs_no_model(run: Run, tiny: Path, saved: Path) -> None:
    fresh = run(*ASK, "--model", tiny).out
    again = run("trace", "--load", saved)
    assert again.code == 0
    replayed = "Replayed: every choice made again from its candidates gives the same text.\n"
    assert again.out == fresh + replayed
    assert "Step 1" in run("trace", "--load", saved, "--step", "1").out
    trace = load(saved)
    assert trace.header.model.fingerprint is not None
    assert run("trace", "--load", saved, "--json").out.encode() == saved.read_bytes()


def test_a_changed_trace_is_refused(run: Run, saved: Path) -> None:
    saved.write_bytes(saved.read_bytes().replace(b'"position":5,', b'"position":6,'))
    assert "does not replay" in run("trace", "--load", saved).error_line(1)
    saved.write_bytes(b"not a trace\n")
    assert f"{saved}: line 1 is no trace" in run("trace", "--load", saved).error_line(1)


def test_a_page_without_names_of_ids_is_still_a_page(run: Run, saved: Path, tmp_path: Path) -> None:
    trace = load(saved)
    trace.header.pieces.clear()
    for step in trace.steps:
        step.pieces.clear()
    save(trace, saved)
    assert run("trace", "--load", saved).code == 0
    assert run("trace", "--load", saved, "--html", tmp_path / "x.html", "--step", "0").code == 0


def test_texts_of_a_file_do_nothing_to_a_terminal(run: Run, saved: Path) -> None:
    trace = load(saved)
    nasty = dict.fromkeys(trace.header.pieces, "\x1b[2J\x9b\u202e\nx")
    hostile: Trace = decoded(saved.read_bytes().splitlines(), "x")
    hostile.header.pieces.update(nasty)
    save(hostile, saved)
    out = run("trace", "--load", saved).out
    assert "\\u001b[2J\\u009b\\u202e\\nx" in out
    assert not [c for c in out if not c.isprintable() and c != "\n"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no prompt; give one or several"),
        (("--load", "x.jsonl", "--ids", "2"), "--load shows a run that is over"),
        (("--load", "x.jsonl", "--save", "y"), "--load shows a run that is over"),
        (("--ids", "2", "--against", "magic"), "no variant 'magic'"),
        (("--ids", "2", "--max-tokens", "0"), "max-tokens"),
        (("--ids", "2", "--save", "no/such/x.jsonl"), "--save 'no/such/x.jsonl': there is no such folder"),
        (
            ("--ids", "2", "--attention", "x"),
            "--attention must be layer numbers with commas between, or 'all', not 'x'",
        ),
        (("--load", "x.jsonl", "--attention", "1"), "--load shows a run that is over; it takes no --attention"),
        (("--load", "x.jsonl", "--seed", "1"), "--load shows a run that is over; it takes no --seed"),
        (("--load", "x.jsonl", "--max-tokens", "1"), "--load shows a run that is over; it takes no --max-tokens"),
        (("--load", "x.jsonl", "--model", "m"), "--load shows a run that is over; it takes no --model"),
        (("--load", "x.jsonl", "text"), "--load shows a run that is over; it takes no PROMPT"),
        (("--demo-page", "x.html", "--step", "1"), "--demo-page has runs of its own; it takes no --step"),
        (("--demo-page", "x.html", "--temperature", "0"), "--demo-page has runs of its own; it takes no --temperature"),
        (("--ids", "2", "--json", "--step", "0"), "give one or the other"),
        (("--ids", "2", "--html", "no/such/x.html"), "--html 'no/such/x.html': there is no such folder"),
        (("--ids", "2", "--demo-page", "x.html"), "--demo-page has runs of its own"),
        (("--ids", "2,x"), "--ids: 'x' is not a token id"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, arguments: tuple[str, ...], message: str) -> None:
    assert message in run("trace", *arguments).error_line(2)


def test_a_trace_becomes_a_page(run: Run, tiny: Path, saved: Path, tmp_path: Path) -> None:
    assert run("trace", "--load", saved, "--html", tmp_path / "again.html").code == 0
    page = (tmp_path / "again.html").read_text()
    assert page.startswith("<!doctype html>")
    assert run(*ASK, "--model", tiny, "--html", tmp_path / "run.html").code == 0
    assert len((tmp_path / "run.html").read_text()) > 100_000


def test_the_page_of_three_runs(run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cabochon.trace.demo.LONG", "a b c")
    monkeypatch.setattr("cabochon.cli.trace.page", lambda runs: "".join(f"{title}\n" for title, _ in runs))
    assert run("trace", "--demo-page", tmp_path / "x.html", "--model", tiny, "--context", "128").code == 0
    assert (tmp_path / "x.html").read_text().splitlines() == [
        "A short text",
        "Beyond the window",
        "Three unequal prompts",
    ]


@pytest.mark.real_model
def test_the_real_model_in_words(run: Run) -> None:
    lines = run("trace", "The capital of France is", "--max-tokens", "3", "--seed", "1", "--json").out.splitlines()
    assert json.loads(lines[0])["model"]["name"] == "Gemma 3 270m"
    assert [end["text"] for end in json.loads(lines[-1])["sequences"]] == [" Paris, home"]
