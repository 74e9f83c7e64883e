# sigmacube: `make demo` and `make test` are all a newcomer needs.
# Everything runs in .venv, which is made once and reused while pyproject.toml stays the same.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
DEV := $(VENV)/.dev
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test shell check bench walk studies docs dist pictures clean test-min attack

help:            ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all]"
	@touch $@

$(DEV): pyproject.toml $(BASE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[all,dev]"
	@touch $@

demo: $(BASE)   ## Denoise the built-in scene, check it against its truth, draw the picture
	$(BIN)/sigmacube demo --out demo

test: $(DEV)    ## Run the tests
	$(BIN)/python -m pytest -n $(JOBS) -q

shell: $(BASE)  ## Open a shell in which sigmacube is at hand; exit leaves it
	@echo "sigmacube is at hand: try 'sigmacube --help'; 'exit' leaves this shell."
	@VIRTUAL_ENV="$(CURDIR)/$(VENV)" PATH="$(CURDIR)/$(BIN):$$PATH" $${SHELL:-sh} -i

test-min:       ## Test the oldest versions of the dependencies that are allowed
	$(PYTHON) -m venv .venv-min
	.venv-min/bin/python tests/oldest.py > .venv-min/oldest.txt
	.venv-min/bin/python -m pip install --quiet --disable-pip-version-check -r .venv-min/oldest.txt
	.venv-min/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	.venv-min/bin/python -m pytest -q -W default -p no:cacheprovider tests/test_minimal.py tests/test_windows.py \
	  tests/test_result_file.py tests/test_sensors.py tests/test_unbreakable_cubes.py \
	  tests/test_unbreakable_places.py::TestZarr \
	  tests/test_unbreakable.py::TestHdf tests/test_unbreakable.py::TestEnvi \
	  tests/test_unbreakable.py::TestResults tests/test_unbreakable.py::TestFullDisk

attack: $(DEV)  ## Damaged files, odd cubes, bad commands, kills, full disks and rude browsers
	$(BIN)/python -m attacks

check: $(DEV)   ## Formatting, lint, types, import layers, documentation
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy studies
	$(BIN)/mypy tests/typed
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

bench: $(DEV)   ## Time and memory, as ratios measured in one run
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/scale.py

walk: $(DEV)    ## Follow one call and one command through the package
	$(BIN)/python benchmarks/walk.py

studies: $(DEV) ## Quick version of every study
	$(BIN)/sigmacube study --all --quick

docs: $(DEV)    ## Build the documentation
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs: docs/_build/html/index.html"

dist: $(DEV)    ## Build sdist and wheel, check them, run the demo from the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python benchmarks/dist.py dist

pictures: $(DEV) ## Take the pictures of the report and the viewer (needs chromium)
	$(BIN)/python docs/figures/pages.py

clean:           ## Remove what the other targets made
	rm -rf $(VENV) .venv-min attacks/found demo docs/_build docs/api docs/generated .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
