# `make demo` and `make test` work on a fresh clone: they make the virtual environment themselves.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-011 lint bench docs wheel clean

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that is new enough. Override with `make PYTHON=...`.
PYTHON ?= $(firstword $(foreach p,python3 python3.12 python3.11 python3.13,$(shell \
	$(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
# Small machines: as many test processes as cores, and no more than eight.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 8 ] && echo 8 || echo $$n)

# Tests start hundreds of processes: each would compile the package's source once more.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 found: install one, or run make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	-$(BIN)/python -m pip install --quiet --retries 0 --timeout 20 'sentryward>=0.1.1' # without it, its test is left out
	-$(BIN)/python -m pip install --quiet --retries 0 --timeout 20 nvidia-cuda-nvdisasm # the same
	-@[ "$$(uname)" != Linux ] || $(BIN)/python packaging/linux/make_wheel.py --in-place >/dev/null # as the wheel has it
	@touch $@

demo: $(VENV)/.installed ## three programs, jax.jit beside stitch_jit: a table and a picture
	$(BIN)/python -m jax_stitch.demo

test: lint ## lint, types and the tests, of those with many cases some: minutes
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" --quick

test-all: lint ## lint, types and all cases of all tests: hours
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# The newest JAX that is supported, on the Python that it is used with, beside whatever .venv has.
VENV_011 := .venv-011
PYTHON_312 ?= $(firstword $(foreach p,python3.12 $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python) python3,$(shell \
	$(p) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null && echo $(p))))

$(VENV_011)/.installed: pyproject.toml
	@test -n "$(PYTHON_312)" || { echo "No Python 3.12 found: install one, or run make PYTHON_312=/path/to/python"; exit 1; }
	$(PYTHON_312) -m venv $(VENV_011)
	$(VENV_011)/bin/python -m pip install --quiet --editable '.[test]' 'jax==0.11.*' 'jaxlib==0.11.*'
	@touch $@

test-011: $(VENV_011)/.installed ## the tests of `make test` with jax 0.11 on Python 3.12, in an environment of its own
	$(VENV_011)/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" --quick

lint: $(VENV)/.installed ## ruff (rules and layout) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

bench: $(VENV)/.installed ## time every workload on the CPU, plan it for an H200, and report both
	-$(BIN)/python -m bench run --suite all --device cpu --json build/bench/cpu.json
	-$(BIN)/python -m bench run --suite all --device h200 --json build/bench/h200.json
	$(BIN)/python -m bench report build/bench/cpu.json build/bench/h200.json --out build/bench/report

docs: $(VENV)/.docs ## the documentation site in build/site: warnings are errors, all links are checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m docs.tools.links build/site

# By itself: the site needs neither the tests' packages nor XLA's GPU compiler.
$(VENV)/.docs: pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 found: install one, or run make PYTHON=/path/to/python"; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

wheel: $(VENV)/.installed ## a wheel for Linux in dist, with the handler of CPU kernels compiled
	$(BIN)/python packaging/linux/make_wheel.py

clean: ## remove caches and the virtual environment
	rm -rf $(VENV) $(VENV_011) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
