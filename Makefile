# `make demo` and `make test` need no step before them: scripts/setup.sh installs what is missing.

MAKEFLAGS += --no-print-directory --no-builtin-rules
# If the environment disables Python's bytecode cache, every process compiles all modules again. That would take half of the
# time of `check` and of every `seltzer` that a test runs.
export PYTHONDONTWRITEBYTECODE :=
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

# The test folders that exist, quick ones first. tests/unit is part of `check`.
slow_tests := $(wildcard tests/contract tests/e2e tests/cgroup2 tests/faults tests/gpu)
# They wait more than they compute: so many sandboxes side by side, and a module stays with one of them. Two and a spare
# one are what the kernel's usual 128 inotify instances suffice for.
sandboxes := 2
side_by_side := --numprocesses $(sandboxes) --dist loadfile --no-loadscope-reorder
unit_tests := --quiet --numprocesses 3 tests/unit
caches := .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
started := $(shell date +%s)
cache = $$(. scripts/setup.sh && printf %s "$$cache")
state = $$(. scripts/setup.sh && printf %s "$$state")

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: setup ## Create a sandbox and run real Slurm in it
	@.venv/bin/seltzer demo

.PHONY: test
test: check ## Run all checks and tests: `check`, then the tests that need a sandbox
ifneq ($(slow_tests),)
	@.venv/bin/seltzer sandbox prepare
	@.venv/bin/pytest --timeout 900 --durations 10 --verbose $(side_by_side) $(slow_tests)
endif

.PHONY: check
check: setup ## Check lint, format, types and layers, and run the unit tests: under a minute, without a sandbox
	@$(MAKE) --jobs 3 --output-sync=target --keep-going types unit lint format layers
	@echo "check: all is well after $$(( $$(date +%s) - $(started) )) s"

.PHONY: lint
lint: setup ## Check for mistakes (ruff)
	@.venv/bin/ruff check --output-format concise

.PHONY: format
format: setup ## Check that the code is formatted; `make format-fix` formats it
	@.venv/bin/ruff format --check

.PHONY: format-fix
format-fix: setup ## Format the code and apply ruff's fixes
	@.venv/bin/ruff check --quiet --fix-only
	@.venv/bin/ruff format

.PHONY: types
types: setup ## Check the types (mypy --strict)
	@.venv/bin/mypy --no-error-summary && echo "types: ok"

.PHONY: layers
layers: setup ## Check which layers import which (import-linter)
	@report=$$(.venv/bin/lint-imports --no-cache) && echo "layers: ok" || { echo "$$report"; exit 1; }

.PHONY: unit
unit: setup ## Run the unit tests
	@.venv/bin/pytest $(unit_tests)

.PHONY: flakes
flakes: setup ## Run the unit tests many times beside CPU hogs and count failures (`make flakes runs=20 hogs=2`; `slow=1`: all tests)
	@flakes=(.venv/bin/python -m tests.flakes $(if $(runs),--runs "$(runs)") $(if $(hogs),--hogs "$(hogs)") --); failed=0; \
	"$${flakes[@]}" $(unit_tests) || failed=$$?; \
	if [[ -n "$(slow)" && $$failed -lt 2 ]]; then \
		.venv/bin/seltzer sandbox prepare; \
		"$${flakes[@]}" --timeout 900 $(side_by_side) $(slow_tests) || failed=$$?; \
	fi; \
	exit $$failed

.PHONY: bench
bench: setup ## Run the benchmarks and compare them with the floor; also writes build/bench.json
	@.venv/bin/python -m bench.engine
	@.venv/bin/python -m bench.cluster
	@.venv/bin/python -m bench.operator
	@.venv/bin/python -m bench.journal
	@.venv/bin/python -m bench.scale
	@.venv/bin/python -m bench.mpi
	@.venv/bin/python -m bench.users
	@.venv/bin/python -m bench.sandbox

.PHONY: faults
faults: setup ## Run the fault campaign: break a real cluster and measure the cost, in about four hours (docs/faults.md)
	@.venv/bin/seltzer sandbox prepare
	@.venv/bin/python -m tests.faults.campaign $(if $(rows),--rows "$(rows)") $(if $(repeats),--repeats $(repeats))

.PHONY: docs
docs: setup ## Generate docs/api.md from the Structs of the API
	@.venv/bin/python -m seltzer.api.reference > docs/api.md.new
	@mv docs/api.md.new docs/api.md

.PHONY: setup
setup: ## Install what is needed: apt packages, uv, .venv (demo, test and check run this first)
	@scripts/setup.sh

.PHONY: lock
lock: ## Update the lock files from pyproject.toml (`make lock upgrade=1` takes the newest versions)
	@scripts/lock.sh $(if $(upgrade),--upgrade)

.PHONY: clean
clean: ## Delete all sandboxes, .venv and the caches of the tools
	@if [[ -x .venv/bin/seltzer ]]; then .venv/bin/seltzer sandbox down --all; fi
	@rm -rf .venv $(caches)
	@echo "left: binaries and images in $(cache) ('make clean-cache' removes them), logs in $(state)"

.PHONY: clean-cache
clean-cache: clean ## Delete the built binaries and images too: the next run rebuilds them in about a quarter of an hour
	@rm -rf "$(cache)" && echo "removed: $(cache)"
