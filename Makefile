# Everything runs in .venv, which each target sets up as far as it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint bench paper docs clean help
.DELETE_ON_ERROR:

help:            ## what can be made
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*##/:/'

demo: .venv/demo ## reduce two photographs, print a table, draw a picture
	$(BIN)/tucket demo

test: lint       ## every check: lint, types, tests, doctests
	$(BIN)/pytest -n auto --dist loadfile

lint: .venv/dev  ## style, imports and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy

bench: .venv/dev ## measure every case against its baseline; keep and draw the results
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.ntd
	$(BIN)/python -m benchmarks.sources
	$(BIN)/python -m benchmarks.estimator

paper: .venv/paper ## the paper's experiments, in docs/paper; what was interrupted goes on (100 minutes)
	$(BIN)/python -m experiments.paper all --output docs/paper
	$(BIN)/python -m benchmarks.paper

docs: .venv/docs ## the documentation, in build/docs; warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "Open build/docs/index.html"

clean:           ## remove what was set up and made
	rm -rf .venv build dist docs/examples docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tucket needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	touch $@

# One stamp an extra: .venv/demo installs the package with its extra `demo`.
.venv/%: .venv/pip pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@
