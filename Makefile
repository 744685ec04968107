# Neither `make demo` nor `make test` needs a step before it: scripts/setup.sh brings what is missing.

MAKEFLAGS += --no-print-directory --no-builtin-rules
# Where a machine forbids Python to keep what it compiled, every process would compile everything again: half of the time
# of `check`, and of every `seltzer` that a test runs.
export PYTHONDONTWRITEBYTECODE :=
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# What of the test folders there is, quick ones first; tests/unit is part of `check`.
slow_tests := $(wildcard tests/contract tests/e2e tests/faults)
# They wait more than they compute: so many sandboxes side by side, and a module stays with one of them. Two and a spare
# one are what the kernel's usual 128 inotify instances suffice for.
sandboxes := 2
side_by_side := --numprocesses $(sandboxes) --dist loadfile --no-loadscope-reorder
caches := .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
started := $(shell date +%s)
cache = $$(. scripts/setup.sh && printf %s "$$cache")
state = $$(. scripts/setup.sh && printf %s "$$state")

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: setup ## Make a sandbox and run real Slurm in it
	@.venv/bin/seltzer demo

.PHONY: test
test: check ## Run all tests: what `check` does, then those that need a sandbox
ifneq ($(slow_tests),)
	@.venv/bin/seltzer sandbox prepare
	@.venv/bin/pytest --timeout 900 --durations 10 --verbose $(side_by_side) $(slow_tests)
endif

.PHONY: check
check: setup ## Lint, types, layers and unit tests: under a minute, needs no sandbox
	@$(MAKE) --jobs 3 --output-sync=target --keep-going types unit lint format layers
	@echo "check: all is well after $$(( $$(date +%s) - $(started) )) s"

.PHONY: lint
lint: setup ## Look for mistakes (ruff)
	@.venv/bin/ruff check --output-format concise

.PHONY: format
format: setup ## See that the code is formatted; `make format-fix` does it
	@.venv/bin/ruff format --check

.PHONY: format-fix
format-fix: setup ## Format the code and fix what ruff can
	@.venv/bin/ruff check --quiet --fix-only
	@.venv/bin/ruff format

.PHONY: types
types: setup ## Check the types (mypy --strict)
	@.venv/bin/mypy --no-error-summary && echo "types: ok"

.PHONY: layers
layers: setup ## Check which part imports which (import-linter)
	@report=$$(.venv/bin/lint-imports --no-cache) && echo "layers: ok" || { echo "$$report"; exit 1; }

.PHONY: unit
unit: setup ## Run the unit tests
	@.venv/bin/pytest --quiet --numprocesses 3 tests/unit

.PHONY: bench
bench: setup ## Measure how fast things are, beside the floor; the numbers are in build/bench.json too
	@.venv/bin/python -m bench.engine
	@.venv/bin/python -m bench.cluster
	@.venv/bin/python -m bench.operator
	@.venv/bin/python -m bench.journal
	@.venv/bin/python -m bench.scale
	@.venv/bin/python -m bench.sandbox

.PHONY: faults
faults: setup ## Break a real cluster in every way there is, and measure what it costs: some four hours (docs/faults.md)
	@.venv/bin/seltzer sandbox prepare
	@.venv/bin/python -m tests.faults.campaign $(if $(rows),--rows "$(rows)") $(if $(repeats),--repeats $(repeats))

.PHONY: docs
docs: setup ## Write docs/api.md from the Structs of the API
	@.venv/bin/python -m seltzer.api.reference > docs/api.md.new
	@mv docs/api.md.new docs/api.md

.PHONY: setup
setup: ## Bring what is needed: apt packages, uv, .venv (demo, test and check do it by themselves)
	@scripts/setup.sh

.PHONY: lock
lock: ## Write the lock files anew from pyproject.toml (`make lock upgrade=1`: with the newest versions)
	@scripts/lock.sh $(if $(upgrade),--upgrade)

.PHONY: clean
clean: ## Take all sandboxes down, remove .venv and the tools' caches
	@if [[ -x .venv/bin/seltzer ]]; then .venv/bin/seltzer sandbox down --all; fi
	@rm -rf .venv $(caches)
	@echo "left: binaries and images in $(cache) ('make clean-cache' removes them), logs in $(state)"

.PHONY: clean-cache
clean-cache: clean ## Remove the built binaries and images too: the next run makes them again, in a quarter of an hour
	@rm -rf "$(cache)" && echo "removed: $(cache)"
