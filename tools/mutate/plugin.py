"""A pytest plugin: the tests run with a fault in the package, and no file is changed.

    CABOCHON_MUTATION="window one too large" python -m pytest -p tools.mutate.plugin tests/unit/test_engine.py

The module in question is compiled from a changed text when it is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import CodeType, ModuleType

from hypothesis import Phase, settings
from tools.mutate.mutations import MUTATIONS, Edit

VARIABLE = "CABOCHON_MUTATION"
"""Environment variable that names a mutation."""


class MutatedLoader(SourceFileLoader):
    """Loads a module from its changed source; compiled files are neither read nor written."""

    def __init__(self, fullname: str, path: str, edit: Edit) -> None:
        super().__init__(fullname, path)
        self._edit = edit

    def get_code(self, fullname: str) -> CodeType:
        """The code of the changed source."""
        with open(self.path, encoding="utf-8") as file:
            return compile(self._edit.apply(file.read()), self.path, "exec", dont_inherit=True)


class MutatingFinder(MetaPathFinder):
    """Finds the modules that are to be changed, wherever others would find them, and nothing else."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = {edit.module: edit for edit in edits}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that is to be changed, with a loader that does so."""
        edit = self._edits.get(fullname)
        if edit is None:
            return None
        del self._edits[fullname]  # the others are asked now
        try:
            spec = find_spec(fullname)
        finally:
            self._edits[fullname] = edit
        if spec is not None and spec.origin is not None:
            loader: Loader = MutatedLoader(fullname, spec.origin, edit)
            spec.loader = loader
        return spec


def install(name: str) -> None:
    """Makes the mutation of that name part of the package, of which no changed module may have been imported yet."""
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    early = [edit.module for edit in mutation.edits if edit.module in sys.modules]
    if early:
        raise RuntimeError(f"imported too early to be mutated: {', '.join(early)}")
    sys.meta_path.insert(0, MutatingFinder(mutation.edits))


# The first example that fails is enough; a small one is not looked for.
settings.register_profile("mutate", phases=[Phase.explicit, Phase.generate])
settings.load_profile("mutate")
if VARIABLE in os.environ:
    install(os.environ[VARIABLE])
