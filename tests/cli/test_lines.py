"""``generate --input --output``: many prompts, each as alone, and none disturbs another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

LINES: tuple[dict[str, Any], ...] = (
    {"id": "a", "prompt": "the", "max_tokens": 9, "seed": 5},
    {"prompt": "the", "max_tokens": 5, "temperature": 0, "logprobs": 1},
    {"id": [1, {"b": None}], "ids": [2, 9, 7, 8], "max_tokens": 30, "temperature": 0, "ignore_eos": True},
    {"prompt": "the", "max_tokens": 9, "seed": 4, "logit_bias": {"9": 2.5}, "repetition_penalty": 1.5},
    {"id": "stop", "prompt": "an", "stop": ["e", "a"], "max_tokens": 40, "seed": 2},
)
BAD = (
    ("not JSON", "line 6: not JSON"),
    ("[1]", "line 6: not a JSON object"),
    ("{}", "line 6: give either prompt or ids"),
    ('{"prompt": "a", "ids": [2]}', "line 6: give either prompt or ids"),
    ('{"prompt": "a", "top_q": 3}', "line 6: no such option: 'top_q'"),
    ('{"prompt": "a", "top_k": -3}', "top_k must be a whole number, 0 or more, not -3"),
    ('{"prompt": ""}', "the prompt is empty"),
    ('{"prompt": "a", "logit_bias": {"x": 1}}', "logit_bias"),
    ('{"prompt": 7}', "a prompt must be a text or a list of token ids, not 7"),
    ('{"ids": ["a"]}', "prompt: token id must be a whole number"),
    ("[" * 100000, "line 6: not JSON"),
    ('{"id": NaN, "prompt": "a"}', "line 6: its id cannot be written as JSON"),
    ('{"id": [-1e999], "prompt": "a"}', "line 6: its id cannot be written as JSON"),
    ('{"prompt": "a", "logit_bias": {"' + "9" * 5000 + '": 1}}', "logit_bias: token id must be a whole number"),
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    """The lines of an output, without what depends on time and on what has run before."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    for entry in entries:
        entry.pop("timings", None)
        entry.pop("reused_tokens", None)
    return entries


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    return write(tmp_path / "in.jsonl", *map(json.dumps, LINES))


@pytest.mark.parametrize("options", [(), ("--max-running", "3"), ("--max-running", "2", "--speculate", "4")])
def test_every_line_gives_what_it_gives_alone(
    run: Run, tiny: Path, lines: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out = tmp_path / "out.jsonl"
    run("generate", "--model", tiny, "--input", lines, "--output", out, "--context", "90", *options)
    got = results(out)
    assert [entry.pop("id") for entry in got] == ["a", 1, [1, {"b": None}], 3, "stop"]
    assert [entry.pop("index") for entry in got] == [0, 1, 2, 3, 4]
    for line, entry in zip(LINES, got, strict=True):
        arguments = ["--ids", ",".join(map(str, line["ids"]))] if "ids" in line else [str(line["prompt"])]
        for key in ("max_tokens", "temperature", "seed", "logprobs"):
            if key in line:
                arguments += [f"--{key.replace('_', '-')}", str(line[key])]
        arguments += ["--logit-bias", "9=2.5", "--repetition-penalty", "1.5"] if "logit_bias" in line else []
        arguments += [text for stop in line.get("stop", ()) for text in ("--stop", stop)]
        arguments += ["--ignore-eos"] if line.get("ignore_eos") else []
        alone = run("generate", *arguments, "--model", tiny, "--json").json
        del alone["timings"], alone["reused_tokens"]
        assert entry == alone


SEVERAL = (
    {"id": "a", "prompt": "the", "max_tokens": 9, "seed": 5, "n": 3},
    {"prompt": "the", "max_tokens": 5, "seed": 1, "prompt_logprobs": 2},
    {"prompt": "of", "max_tokens": 7, "seed": 2, "n": 2, "choice": 4},
    {"prompt": "of", "n": 0},
    {"prompt": "an", "max_tokens": 3, "seed": 2, "n": 1},
)
PLACES = [(0, 0), (0, 1), (0, 2), (1, None), (2, 4), (2, 5), (3, None), (4, 0)]
"""Line and choice of each result."""


@pytest.mark.parametrize("options", [(), ("--max-running", "3")])
def test_several_choices_are_several_lines(run: Run, tiny: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    lines, out = write(tmp_path / "in.jsonl", *map(json.dumps, SEVERAL)), tmp_path / "out.jsonl"
    outcome = run("generate", "--model", tiny, "--input", lines, "--output", out, *options)
    assert outcome.error_line(1).startswith("error: 1 lines ended with an error")
    got = results(out)
    assert [(entry["index"], entry.get("choice")) for entry in got] == PLACES
    assert [entry["id"] for entry in got] == ["a"] * 3 + [1, 2, 2, 3, 4]
    assert got[6]["error"].startswith("n must be a whole number")
    for entry in got[:6]:
        line = SEVERAL[entry["index"]]
        arguments = ["--seed", line["seed"], "--max-tokens", line["max_tokens"], "--choice", entry.get("choice", 0)]
        arguments += ["--prompt-logprobs", "2"] if "prompt_logprobs" in line else []
        alone = run("generate", line["prompt"], *map(str, arguments), "--model", tiny, "--json").json
        assert {key: entry.get(key) for key in alone if key not in ("timings", "reused_tokens")} == {
            key: value for key, value in alone.items() if key not in ("timings", "reused_tokens")
        }


def test_the_commands_own_number_of_choices_is_for_lines_without_one(run: Run, tiny: Path, tmp_path: Path) -> None:
    lines, out = write(tmp_path / "in.jsonl", *map(json.dumps, SEVERAL)), tmp_path / "out.jsonl"
    run("generate", "--model", tiny, "--input", lines, "--output", out, "-n", "2")
    places = [(entry["index"], entry.get("choice")) for entry in results(out)]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 4), (2, 5), (3, None), (4, 0)]
    run("generate", "--model", tiny, "--input", lines, "--output", out, "-n", "2")
    assert len(results(out)) == len(places)
    again = run("generate", "--model", tiny, "--input", lines, "--output", out)
    assert "line 4 is no result of this input" in again.error_line(2)


@pytest.mark.parametrize("kept", range(len(PLACES) + 1))
@pytest.mark.parametrize("torn", [b"", b'{"id": "a", "ind'])
def test_it_goes_on_with_a_line_whose_choices_are_not_all_there(
    run: Run, tiny: Path, tmp_path: Path, kept: int, torn: bytes
) -> None:
    lines = write(tmp_path / "in.jsonl", *map(json.dumps, SEVERAL))
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run("generate", "--model", tiny, "--input", lines, "--output", whole)
    done = whole.read_bytes().splitlines(keepends=True)[:kept]
    out.write_bytes(b"".join(done) + torn)
    run("generate", "--model", tiny, "--input", lines, "--output", out)
    assert results(out) == results(whole)
    # A line of which all is there is not done again: what it took is still what it took.
    begun = PLACES[kept][0] if kept < len(PLACES) else len(SEVERAL)
    there = b"".join(line for line, (index, _) in zip(done, PLACES, strict=False) if index < begun)
    assert out.read_bytes().startswith(there)


@pytest.mark.parametrize(("text", "error"), BAD)
def test_a_bad_line_is_told_and_disturbs_no_other(
    run: Run, tiny: Path, lines: Path, tmp_path: Path, text: str, error: str
) -> None:
    out = tmp_path / "out.jsonl"
    good = lines.read_text().splitlines()
    write(lines, *good, text, json.dumps({"prompt": "the", "max_tokens": 2, "seed": 1}))
    outcome = run("generate", "--model", tiny, "--input", lines, "--output", out, "--max-running", "4")
    assert outcome.error_line(1).startswith("error: 1 lines ended with an error")
    got = results(out)
    assert [entry["index"] for entry in got] == list(range(7))
    assert got[5]["error"].startswith(error)
    assert ["error" in entry for entry in got] == [False] * 5 + [True, False]


@pytest.mark.parametrize("kept", [0, 1, 3, 4])
@pytest.mark.parametrize("torn", [b"", b'{"id": "a", "ind'])
def test_it_goes_on_where_it_ended(run: Run, tiny: Path, lines: Path, tmp_path: Path, kept: int, torn: bytes) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    run("generate", "--model", tiny, "--input", lines, "--output", whole)
    done = whole.read_bytes().splitlines(keepends=True)[:kept]
    out.write_bytes(b"".join(done) + torn)
    run("generate", "--model", tiny, "--input", lines, "--output", out)
    assert out.read_bytes().startswith(b"".join(done))
    assert results(out) == results(whole)


def test_another_files_results_are_not_gone_on_with(run: Run, tiny: Path, lines: Path, tmp_path: Path) -> None:
    numbered = '{"id": "a", "index": 0, "choice": 0}\n'
    for content in (numbered, "a letter\n", '{"id": "b", "index": 0}\n', '{"id": "a", "index": 1}\n', "7\n"):
        out = tmp_path / "out.jsonl"
        out.write_text(content)
        outcome = run("generate", "--model", tiny, "--input", lines, "--output", out)
        assert "line 1 is no result of this input" in outcome.error_line(2)
        assert out.read_text() == content


def test_what_cannot_be_is_refused(run: Run, tiny: Path, lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    model = ("--model", tiny)
    assert "go together" in run("generate", *model, "--input", lines).error_line(2)
    assert "go together" in run("generate", "a", *model, "--output", out).error_line(2)
    assert "prompts of its own" in run("generate", "a", *model, "--input", lines, "--output", out).error_line(2)
    missing = run("generate", *model, "--input", tmp_path / "none", "--output", out)
    assert "No such file" in missing.error_line(1)
    assert "--output" in run("generate", *model, "--input", lines, "--output", tmp_path).error_line(1)
    assert "is not a size" in run("generate", "a", *model, "--kv-memory", "much").error_line(2)
    assert "kv_memory of 0 MiB is too little" in run("generate", "a", *model, "--kv-memory", "9K").error_line(2)
