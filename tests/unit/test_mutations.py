"""The mutations of ``make mutate``: each can still be made, and each is made as it is written."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
from tools.mutate.mutations import MUTATIONS, Edit, Mutation, source_of
from tools.mutate.plugin import MutatingFinder

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_applies_to_the_sources(mutation: Mutation) -> None:
    for edit in mutation.edits:
        compile(edit.apply(source_of(edit.module)), edit.module, "exec")
    assert all((ROOT / test).is_file() for test in mutation.tests)


def test_each_has_a_name_and_words_of_its_own() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len({mutation.edits for mutation in MUTATIONS})
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_words_that_are_not_there_or_there_twice_are_an_error() -> None:
    for source in ("", "x x"):
        with pytest.raises(ValueError, match=r"m holds 'x' [02] times"):
            Edit("m", "x", "y").apply(source)


def test_a_module_is_imported_with_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a_module_to_be_mutated"
    file = tmp_path / f"{name}.py"
    file.write_text("VALUE = 1 + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_module(name).VALUE == 2  # and is compiled now
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [MutatingFinder([Edit(name, "+ 1", "+ 2")]), *sys.meta_path])
    mutated = import_module(name)
    monkeypatch.delitem(sys.modules, name)
    assert mutated.VALUE == 3
    assert file.read_text() == "VALUE = 1 + 1\n"
