# Everything runs in .venv, which each target sets up as far as it needs; test-minimal and test-lowest have their own.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-minimal test-lowest lint bench paper docs clean help
.DELETE_ON_ERROR:

help:            ## what can be made
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*##/:/'

demo: .venv/demo ## reduce two photographs, print a table, draw a picture
	$(BIN)/tucket demo

test: lint       ## every check: lint, types, tests, doctests; then test-minimal and test-lowest
	$(BIN)/pytest -n auto --dist loadfile
	$(MAKE) test-minimal test-lowest

test-minimal: .venv-minimal/test ## the tests without any optional package; those that need one are skipped
test-lowest: .venv-lowest/test   ## the same, with the oldest versions that pyproject.toml allows (Python 3.11 or 3.12)
# compiled code is kept in each environment, since versions of Numba do not share it
test-minimal test-lowest: test-%:
	HYPOTHESIS_PROFILE=quick NUMBA_CACHE_DIR=$(CURDIR)/.venv-$*/numba \
		.venv-$*/bin/pytest -n auto --dist loadfile -q -rfE --doctest-ignore-import-errors tests

lint: .venv/dev  ## style, imports, spelling and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/codespell
	$(BIN)/mypy

bench: .venv/dev ## measure every case against its baseline; keep and draw the results
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.ntd
	$(BIN)/python -m benchmarks.quality
	$(BIN)/python -m benchmarks.entries
	$(BIN)/python -m benchmarks.gaps
	$(BIN)/python -m benchmarks.passes
	$(BIN)/python -m benchmarks.sources
	$(BIN)/python -m benchmarks.estimator

paper: .venv/paper ## the paper's experiments, in docs/paper; what was interrupted goes on (100 minutes)
	$(BIN)/python -m experiments.paper all --output docs/paper
	$(BIN)/python -m benchmarks.paper

docs: .venv/docs ## the documentation, in build/docs; warnings are errors
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo "Open build/docs/index.html"

clean:           ## remove what was set up and made
	rm -rf .venv .venv-minimal .venv-lowest build dist docs/examples docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tucket needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	touch $@

# One stamp an extra: .venv/demo installs the package with its extra `demo`.
.venv/%: .venv/pip pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@

# The package with what it requires, and what its tests require.
.venv-minimal/test: pyproject.toml
	$(PYTHON) -m venv --clear .venv-minimal
	.venv-minimal/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"
	touch $@

.venv-lowest/test: pyproject.toml
	$(PYTHON) -m venv --clear .venv-lowest
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' \
		| sed 's/>=/==/' > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-lowest/constraints.txt --editable ".[test]"
	touch $@
