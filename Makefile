# Two commands matter: `make run` (the demo) and `make test`. Each sets up everything it needs first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# The tests start some hundreds of programs: without its compiled files each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test setup check campaigns bench lock docs images clean

help:            ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY)    ## Set up, then run the demo
	$(BIN)/syncline demo

test: $(READY)   ## Set up, then lint, type-check and run all tests but the slow ones
	$(PYTHON) tools/setup.py --tests
	$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest -q --ignore=tests/campaigns -m "not slow" -n 2 --dist loadgroup

setup: $(READY)  ## Make the virtual environment and install the pinned packages

$(READY): requirements.lock pyproject.toml tools/setup.py
	$(PYTHON) tools/setup.py
	@touch $@

check: $(READY)  ## Lint, type-check and check who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

campaigns: $(READY) ## Run the slow tests and the fault campaigns (LONG=1: in full), then write docs/reliability.md
	$(PYTHON) tools/setup.py --tests
	$(BIN)/python -m pytest -q --ignore=tests/campaigns -m slow
	rm -f build/figures.ndjson
	SYNCLINE_LONG=$(LONG) SYNCLINE_FIGURES=build/figures.ndjson $(BIN)/python -m pytest -q -s tests/campaigns; \
	  code=$$?; $(BIN)/python -m tools.reliability; exit $$code

bench: $(READY)  ## Run every benchmark against its peer and write docs/benchmarks.md
	$(BIN)/syncline bench all --write docs/benchmarks.md

docs: $(READY)   ## Write the generated pages anew from the code
	$(BIN)/python tools/docs.py

images: $(READY) ## Take the pictures of the documentation anew
	KEEP_IMAGES=1 $(BIN)/python -m pytest -q tests/browser/test_demo.py

lock: $(READY)   ## Resolve pyproject.toml anew into requirements.lock
	$(PYTHON) tools/lock.py

clean:           ## Remove what set-up made
	rm -rf $(VENV) node_modules tests/interop/node_modules .mypy_cache .ruff_cache
