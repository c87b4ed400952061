# Everything runs in .venv, which is made from hash-checked pins. Two commands do all the set-up: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
TESTS ?= tests
# Most of a test's time is waiting for real processes, so more of them than cores run at once.
JOBS ?= 4
BENCHES := policies slow-seat nine-minutes seats shared chunks latency backlog pace memory listing pickup handover lanes tracing start scale carries

.PHONY: demo up test faults soak lint format bench bench-peers bench-report pins sbom clean

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
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

faults: .venv/installed     ## every fault at every moment, an hour or less; writes docs/faults.md
	rm -rf .faults && mkdir .faults
	CUSCUTA_FAULTS=all CUSCUTA_FAULTS_REPORT=$(CURDIR)/.faults $(BIN)/python -m pytest -n $(JOBS) tests/faults
	$(BIN)/python -m tests.faults.report .faults "$$(git log -1 --format='%cs, %h')"

soak: .venv/installed       ## random faults under a stream of jobs for MINUTES (20)
	$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),20) $(ARGS)

lint: .venv/installed       ## house law: style, types, arrows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/installed      ## every benchmark; each prints one JSON line
	for name in $(BENCHES); do $(BIN)/python -m tests.bench $$name --record || exit 1; done

.venv-peers/installed: requirements.txt tests/bench/peers/requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt \
	  -r tests/bench/peers/requirements.txt
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch .venv-peers/installed

bench-peers: .venv-peers/installed  ## Celery, arq and taskiq-nats on the same work (needs Debian's redis-server)
	.venv-peers/bin/python -m tests.bench.peers --record

bench-report: .venv-peers/installed ## plots and table of docs/benchmarks.md from the recorded results
	.venv-peers/bin/python -m tests.bench.report

pins:                       ## renew requirements.txt from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra embedded --extra dev --generate-hashes --universal --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --quiet --custom-compile-command "make pins" -o requirements.txt
	uv pip compile pyproject.toml --generate-hashes --universal --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --quiet --custom-compile-command "make pins" \
	  -c requirements.txt -o deploy/image/requirements.txt
	uv pip compile deploy/image/build.in --generate-hashes --universal --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --quiet --custom-compile-command "make pins" \
	  -c requirements.txt -o deploy/image/build.txt
	uv pip compile tests/bench/peers/requirements.in --generate-hashes --universal --python-version 3.11 \
	  --no-emit-index-url --no-emit-find-links --quiet --custom-compile-command "make pins" \
	  -o tests/bench/peers/requirements.txt

sbom: .venv/installed       ## what is in the image, as CycloneDX: dist/cuscuta.cdx.json
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON \
	  -o dist/cuscuta.cdx.json deploy/image/requirements.txt

clean:
	rm -rf .venv .venv-peers .faults dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
