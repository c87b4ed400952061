# Everything runs in .venv, which is made from hash-checked pins. Two commands do all the set-up: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
TESTS ?= tests
# Most of a test's time is waiting for real processes, so more of them than cores run at once.
JOBS ?= 4

.PHONY: demo up test lint format bench pins clean

.venv/installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch .venv/installed

demo: .venv/installed       ## the main job on embedded servers, in about 15 seconds
	$(BIN)/cuscuta demo $(ARGS)

up: .venv/installed         ## everything on this box until Ctrl-C
	$(BIN)/cuscuta up $(ARGS)

test: .venv/installed       ## the whole suite
	$(BIN)/python -m pytest -n $(JOBS) $(TESTS)

lint: .venv/installed       ## house law: style, types, arrows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed      ## every benchmark; each prints one JSON line
	for name in policies chunks backlog listing pickup handover; do $(BIN)/python -m tests.bench $$name || exit 1; done

pins:                       ## renew requirements.txt from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra embedded --extra dev --generate-hashes --universal --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --quiet --custom-compile-command "make pins" -o requirements.txt

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
