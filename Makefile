# `make demo` and `make test` work on a fresh clone: they make the virtual environment themselves.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-011 test-oldest lint bench docs wheel clean

comma := ,
VENV := .venv
BIN := $(VENV)/bin
# The newest interpreter at hand that the newest JAX is tested on, else any that is new enough.
# Override with `make PYTHON=...`.
of_version = python$(1) $(wildcard $(HOME)/.pyenv/versions/$(1).*/bin/python)
first_with = $(firstword $(foreach p,$(1),$(shell $(p) -c 'import sys; sys.exit(not ($(2)))' 2>/dev/null && echo $(p))))
PYTHON ?= $(call first_with,$(call of_version,3.13) $(call of_version,3.12) python3 $(call of_version,3.11),sys.version_info >= (3$(comma) 11))
# Small machines: as many test processes as cores, and no more than eight.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 8 ] && echo 8 || echo $$n)

# Tests start hundreds of processes: each would compile the package's source once more.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 13

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found: install one, or run make PYTHON=/path/to/python"; exit 1; }
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

# Older versions of JAX, each with a Python that it is used with, in environments of their own.
jax_version = $(foreach p,jax jaxlib jax-cuda13-plugin jax-cuda13-pjrt,'$(p)==$(1).*')
VENV_011 := .venv-011
VENV_OLDEST := .venv-oldest
PYTHON_011 ?= $(call first_with,$(call of_version,3.12) $(call of_version,3.11) python3,(3$(comma) 11) <= sys.version_info < (3$(comma) 14))
PYTHON_OLDEST ?= $(call first_with,$(call of_version,3.11) $(call of_version,3.12) python3,(3$(comma) 11) <= sys.version_info < (3$(comma) 14))

$(VENV_011)/.installed: pyproject.toml
	@test -n "$(PYTHON_011)" || { echo "No Python 3.11 to 3.13 found: install one, or run make PYTHON_011=/path/to/python"; exit 1; }
	$(PYTHON_011) -m venv $(VENV_011)
	$(VENV_011)/bin/python -m pip install --quiet --editable '.[test]' $(call jax_version,0.11)
	@touch $@

$(VENV_OLDEST)/.installed: pyproject.toml
	@test -n "$(PYTHON_OLDEST)" || { echo "No Python 3.11 to 3.13 found: install one, or run make PYTHON_OLDEST=/path/to/python"; exit 1; }
	$(PYTHON_OLDEST) -m venv $(VENV_OLDEST)
	$(VENV_OLDEST)/bin/python -m pip install --quiet --editable '.[test]' $(call jax_version,0.10)
	@touch $@

test-011: $(VENV_011)/.installed ## the tests of `make test` with jax 0.11, in an environment of its own
	$(VENV_011)/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" --quick

test-oldest: $(VENV_OLDEST)/.installed ## the same with jax 0.10, the oldest that is supported
	$(VENV_OLDEST)/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow" --quick

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
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found: install one, or run make PYTHON=/path/to/python"; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

wheel: $(VENV)/.installed ## a wheel for Linux in dist, with the handler of CPU kernels compiled
	$(BIN)/python packaging/linux/make_wheel.py

clean: ## remove caches and the virtual environment
	rm -rf $(VENV) $(VENV_011) $(VENV_OLDEST) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
