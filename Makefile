# Everything starts here: "make demo" to see it run, "make test" to work on it. Needs Python 3.11 or newer (with venv
# and headers), make and a C++20 compiler; all else is installed into .venv.

PYTHON ?= python3
JOBS ?= 2
CASES ?= 100000
MINUTES ?= 20
SANITIZE ?= address,undefined
export CXX

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check
BUILD_TOOLS := 'scikit-build-core>=0.11' 'nanobind>=3' 'cmake>=3.26' ninja

# SIMDe lets the AVX-512 kernels be tested on any x86-64; without it those tests are skipped, and say so.
SIMDE_INCLUDE ?= /usr/include
SIMDE := $(if $(wildcard $(SIMDE_INCLUDE)/simde/x86/avx512.h),ON,OFF)
WERROR ?= $(if $(CI),ON,OFF)
DEV_BUILD := -C cmake.define.CABOCHON_WERROR=$(WERROR) \
	-C cmake.define.CABOCHON_EMULATE_AVXVNNI=ON -C cmake.define.CABOCHON_EMULATE_AVX512=$(SIMDE) -C cmake.define.CABOCHON_SIMDE_INCLUDE=$(SIMDE_INCLUDE)

NATIVE := $(shell find native -name '*.cpp' -o -name '*.h' -o -name '*.inl')
INPUTS := pyproject.toml CMakeLists.txt src/cabochon/_version.py $(NATIVE)

# A folder set up for development also serves the demo.
DEMO_READY := $(if $(wildcard $(VENV)/.dev-deps),$(VENV)/.dev-build,$(VENV)/.demo-build)

.PHONY: demo setup test check format bench bench-compare golden random-types bits laws mutate soak bench-engine bench-trace \
	bench-page verify-real verify-against sanitize test-minimal test-arm clean help

help:
	@echo 'make demo           install what a user needs and let the real Gemma 3 270M continue a sentence'
	@echo 'make setup          install everything a developer needs into .venv'
	@echo 'make test           setup, then the whole test suite'
	@echo 'make check          formatting, lint, types, import rules'
	@echo 'make format         put the sources into the agreed format'
	@echo 'make bench          speed of this machine: the model, and each kernel beside its ceiling'
	@echo 'make bench-compare  the same beside other programs'
	@echo 'make golden         agreement of the real model with its recorded figures (minutes)'
	@echo 'make random-types   agreement on random models of every weight type (minutes)'
	@echo 'make bits           the table of weight types and instruction sets: bits equal to the reference'
	@echo 'make verify-real    the laws on the real model (minutes)'
	@echo 'make verify-against the cached loop beside others on the real model: equals equal, controls broken (minutes)'
	@echo 'make laws           law 2 in CASES=$(CASES) random mixes of requests (an hour)'
	@echo 'make mutate         faults put into the package one by one: a test must see each (minutes)'
	@echo 'make soak           twice the load that the engine can take, on the real model, for MINUTES=$(MINUTES)'
	@echo 'make bench-engine   many streams beside llama.cpp, and reuse of what is stored'
	@echo 'make bench-trace    what tracing costs, off and on'
	@echo 'make bench-page     how long the page of a long trace takes to show a step'
	@echo 'make sanitize       the native tests under SANITIZE=$(SANITIZE), or SANITIZE=thread (minutes)'
	@echo 'make test-minimal   the wheel without any extra: every module imported, the command run'
	@echo 'make test-arm       the native tests and the laws on 64-bit ARM, emulated (minutes)'
	@echo 'make clean          remove what was built'

# ---- Using it ---------------------------------------------------------------------------------------------------

demo: $(DEMO_READY)
	$(BIN)/cabochon generate "The capital of France is" --seed 1

bench: $(DEMO_READY)
	$(BIN)/cabochon bench
	$(BIN)/python benchmarks/kernels.py

# ---- Working on it ----------------------------------------------------------------------------------------------

setup: $(VENV)/.dev-build

test: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(NATIVE)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(NATIVE)

bench-compare: setup
	$(BIN)/python benchmarks/compare.py --save benchmarks/results/compare.json
	$(BIN)/python benchmarks/compare.py --activations int8 --save benchmarks/results/compare-int8.json
	$(BIN)/python benchmarks/cold_start.py --save benchmarks/results/cold-start.json
	$(BIN)/python benchmarks/make_figures.py

golden: setup
	$(BIN)/python benchmarks/golden.py --save benchmarks/results/golden.json
	$(BIN)/python benchmarks/golden.py --activations int8 --save benchmarks/results/golden-int8.json
	$(BIN)/python benchmarks/golden.py --backend torch --save benchmarks/results/golden-torch.json
	$(BIN)/python benchmarks/make_figures.py

random-types: setup
	$(BIN)/python benchmarks/random_types.py

bits: setup
	$(BIN)/python -m benchmarks.bit_equality

verify-real: setup
	$(BIN)/python benchmarks/verify_real.py

verify-against: setup
	$(BIN)/python benchmarks/verify_against.py --save benchmarks/results/verify-against.json

laws: setup
	CABOCHON_LAW_CASES=$(CASES) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/laws/test_company_laws.py

mutate: setup
	$(BIN)/python -m tools.mutate --jobs $(JOBS)

soak: setup
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES)

bench-engine: setup
	$(BIN)/python benchmarks/streams.py --save benchmarks/results/streams.json
	$(BIN)/python benchmarks/single_stream.py --save benchmarks/results/single-stream.json
	$(BIN)/python benchmarks/reuse.py --save benchmarks/results/reuse.json

bench-trace: setup
	$(BIN)/python benchmarks/tracing.py --save benchmarks/results/tracing.json

bench-page: setup
	$(BIN)/python -m benchmarks.page_scrub

sanitize: $(VENV)/.dev-deps
	tools/sanitize/test.sh $(SANITIZE)

# The wheel takes over what was compiled for development.
test-minimal: setup
	rm -rf build/minimal
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/minimal . $(DEV_BUILD)
	PYTHON=$(BIN)/python tools/minimal/test.sh build/minimal/*.whl

test-arm: $(VENV)/.tools
	JOBS=$(JOBS) tools/arm/test.sh

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- The environment; each stamp is remade when what it came from changes -----------------------------------------

$(VENV)/.tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Cabochon needs Python 3.11 or newer; name one with: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, pathlib, sysconfig, sys; \
		sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' 2>/dev/null || \
		{ echo "Cabochon needs Python's venv module and headers (on Debian: python3-venv, python3-dev)" >&2; exit 1; }
	@command -v $(CXX) >/dev/null || { echo "Cabochon needs a C++20 compiler (on Debian: g++)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(BUILD_TOOLS)
	@touch $@

$(VENV)/.demo-build: $(VENV)/.tools $(INPUTS)
	$(PIP) install --no-build-isolation --editable '.[demo]'
	@touch $@

$(VENV)/.dev-deps: $(VENV)/.tools pyproject.toml
	$(PIP) install --no-build-isolation --editable '.[dev]' $(DEV_BUILD)
	@touch $@

$(VENV)/.dev-build: $(VENV)/.dev-deps $(INPUTS)
	$(PIP) install --no-build-isolation --no-deps --editable . $(DEV_BUILD)
	@touch $@
