# make run    a page on this machine to talk to your agent (Claude with ANTHROPIC_API_KEY, else the built-in demo model)
# make test   lint, types and every test
# Nothing needs root or a key; everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint sprite/constraints.txt
PAGE_TOOLS := node_modules/.installed
BIOME := $(BIN)/node node_modules/@biomejs/biome/bin/biome
TSC := $(BIN)/node node_modules/typescript/bin/tsc

# The code is compiled once, not at each of the tests' hundreds of starts.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run chat test fast units lint ruff mypy imports page types soak bench clean

help: ## these lines
	@sed -n 's/^\([a-z]*\):[^#]*## /make \1\t/p' $(MAKEFILE_LIST)

run: $(VENV)/.run ## start your agent and print the address of its page (ARGS="--port 9000" and the like)
	@exec $(BIN)/python -m bridge serve $(ARGS)

chat: $(VENV)/.run ## talk to your agent in this terminal
	@$(BIN)/python -m bridge chat $(ARGS)

# Tests wait a lot: six workers also on two cores. Each file stays on one worker (conftest.py).
WORKERS ?= 6
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
# GNU make 3.81 (macOS) cannot keep the outputs of parallel targets apart.
TOGETHER := $(MAKE) --no-print-directory -j 8 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

test: $(VENV)/.dev $(PAGE_TOOLS) ## lint, types and every test, side by side
	@$(TOGETHER) lint & lint=$$!; $(PYTEST) -n $(WORKERS); tests=$$?; wait $$lint && exit $$tests

fast: $(VENV)/.dev $(PAGE_TOOLS) ## lint, types and the tests that start no process, side by side: under a minute
	@$(TOGETHER) lint units

# These tests hardly wait: three workers also on two cores.
UNIT_WORKERS ?= 3

units:
	$(PYTEST) -n $(UNIT_WORKERS) -m 'not soak and not postgres' tests/pure tests/stores

lint: ruff mypy imports page ## ruff, mypy and the layers of imports; Biome and tsc for the page

ruff: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports --no-logo

page: $(VENV)/.dev $(PAGE_TOOLS)
	$(BIOME) check --error-on-warnings
	$(TSC)
	$(TSC) --project tsconfig.worker.json

types: $(VENV)/.dev $(PAGE_TOOLS) ## the page's types of messages, from the protocol
	PYTHONPATH=. $(BIN)/python tools/page_types.py

# Random inputs for so long, all targets together.
FUZZ_SECONDS ?= 600

# The files with a campaign read how long it is from SOAK_*.
soak: $(VENV)/.dev ## kills, cut connections, pulled plugs and hostile inputs, many times as long (FUZZ_SECONDS=3600: an hour of these)
	SOAK_EXAMPLES=1000 SOAK_TURNS=10000 $(PYTEST) -n 2 tests/pure tests/stores
	SOAK_KILLS=500 SOAK_CUTS=200 SOAK_SPRITES=40 SOAK_PAGES=200 SOAK_STOPPED_SECONDS=20 FUZZ_SECONDS=$(FUZZ_SECONDS) \
		$(BIN)/python -m pytest -s -m '' tests/fuzz \
		$(shell grep -rlE 'SOAK_|mark.soak' tests/process tests/page --include='test_*.py')

bench: $(VENV)/.dev ## benchmarks, each as a ratio to a baseline of the same run
	@for script in $(filter-out %/bench_locomo.py %/bench_retrieval.py %/bench_agentdojo.py %/bench_secrets.py,$(wildcard benchmarks/bench_*.py)); do \
		PYTHONPATH=. $(BIN)/python $$script || exit 1; done
	@if [ -n "$(LOCOMO)" ]; then PYTHONPATH=. $(BIN)/python benchmarks/bench_locomo.py $(LOCOMO); \
		else echo "LoCoMo is not measured: its data is not ours to ship (make bench LOCOMO=FILE)"; fi
	@if [ -n "$(RETRIEVAL)" ]; then \
		PYTHONPATH=. $(BIN)/python benchmarks/bench_retrieval.py $(RETRIEVAL) --leave-one-out; \
		else echo "Retrieval is not measured: its data is not ours to ship (make bench RETRIEVAL=FOLDER)"; fi
	@if [ -n "$(SECRETS)" ]; then PYTHONPATH=. $(BIN)/python benchmarks/bench_secrets.py $(SECRETS); \
		else echo "Secrets by other authors are not measured: make bench SECRETS=FOLDER"; fi
	@echo "AgentDojo is not measured: it needs an environment of its own (benchmarks/bench_agentdojo.py)"

clean: ## the environment and the caches
	rm -rf $(VENV) node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A Python that is named for an existing .venv would be ignored.
ifeq ($(origin PYTHON),command line)
$(VENV)/.python: | named
.PHONY: named
named:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON) on this machine."; exit 1; }
	@[ ! -e $(VENV)/.python ] || echo "$(VENV) keeps its own Python. For $(PYTHON), run make clean first."
endif

$(VENV)/.python:
	@PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -c 'import sprite' \
		|| { echo "Name another one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up .venv (once, about a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python requirements.txt sprite/requirements.txt bridge/requirements.txt sprite/constraints.txt
	@$(INSTALL) -r requirements.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	@$(INSTALL) -r requirements-dev.txt
	@touch $@

# Node comes with .venv, from PyPI. It runs what checks the page, never the page.
$(PAGE_TOOLS): package.json package-lock.json | $(VENV)/.dev
	@$(BIN)/npm ci --ignore-scripts --loglevel=error
	@touch $@
