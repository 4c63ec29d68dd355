# Everything happens in .venv at the project's root; `make` alone lists what there is.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
TESTS ?=
PROCESSES ?= 2
# PROCESSES=0 is one, for a debugger. A file's tests stay together: they share servers, databases and what a module's fixture played.
PYTEST := $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
CONFORMANCE := $(BIN)/python -P docs/make_conformance.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-matrix test-cluster test-lake test-install test-image wheel test-full unit conformance lint chaos soak soak-quiet bench bench-long bench-quick bench-lake bench-cluster lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## everything the project needs, once, into .venv

.venv/.ready: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
	@echo "setting up .venv with $(PYTHON) (some minutes, once)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet --require-hashes -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@echo "fetching the lake server's jars, compiling the kernels and starting the server once"
	$(BIN)/pgsub fetch
	$(BIN)/python -P -m compileall -q subscriber workers config catalog
	@touch $@

demo: setup ## a live PostgreSQL replicated into Iceberg tables before your eyes
	@$(BIN)/pgsub demo

test: setup ## the tests but for the long crash tests (TESTS=… a file, a folder, pytest's options; PROCESSES=N)
	$(PYTEST) $(TESTS)

test-matrix: setup ## what runs on several versions of PostgreSQL, on 14 to 18 (fetches 14, 15, 17 once)
	$(PYTEST) -m matrix $(TESTS)

test-cluster: setup ## copy and stream on a Spark standalone cluster, by a shared folder and by S3 (fetches jars once)
	$(PYTEST) -m cluster $(TESTS)

test-lake: setup ## copy and stream into tables on S3 behind a REST catalog (fetches 1.3 GB once; Trino and Nessie need PGSUB_NEWER_JAVA_HOME or a Java 25 below /usr/lib/jvm, the tests of Azure Node and npm)
	$(PYTEST) -m lake $(TESTS)

unit: setup ## the tests that start no server
	$(PYTEST) -m "not postgres and not spark and not crash and not long and not cluster and not lake and not install and not image" $(TESTS)

test-install: setup ## the wheel in an environment of its own: fetch, demo, no network
	$(PYTEST) -n 0 -m install $(TESTS)

test-image: setup ## the container image, built and run (needs docker.io and debootstrap, or PGSUB_IMAGE_BASE)
	$(PYTEST) -n 0 -m image $(TESTS)

wheel: setup ## the wheel, in dist/
	$(BIN)/python -P -m hatchling build -t wheel -d dist

test-full: setup ## everything; renews docs/conformance.md, and fails where an id has not passed
	$(PYTEST) -m "" --conformance=docs/conformance_results.json $(TESTS); \
	  ended=$$?; $(CONFORMANCE) && $(CONFORMANCE) --check && exit $$ended

conformance: setup ## the scenarios of PostgreSQL's own tests; renews docs/conformance.md, fails as test-full does
	$(PYTEST) -m "" --numbered --conformance=docs/conformance_results.json $(TESTS); \
	  ended=$$?; $(CONFORMANCE) && $(CONFORMANCE) --check && exit $$ended

lint: setup ## lock, style, types, layers
	$(PIP) check
	$(BIN)/pytest -q -p no:randomly tests/test_packaging.py -k lock
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

chaos: setup ## a random workload under random faults (SEED=1 N=1 JOBS=1 FAULTS=yes DDL=drawn LAKE=local WRITER=auto)
	PYTHONPATH=. $(BIN)/python -P -m tests.chaos --seed $(or $(SEED),1) --count $(or $(N),1) \
	  --jobs $(or $(JOBS),1) --faults $(or $(FAULTS),yes) --ddl $(or $(DDL),drawn) \
	  --lake $(or $(LAKE),local) --writer $(or $(WRITER),auto)

soak: setup ## steady load, a kill every two minutes, and what grows (MINUTES=60 RATE=200 FORMAT=2)
	PYTHONPATH=. $(BIN)/python -P -m tests.soak --minutes $(or $(MINUTES),60) --rate $(or $(RATE),200) --format-version $(or $(FORMAT),2)
	$(BIN)/python -P docs/make_scaling.py

soak-quiet: setup ## steady load and sessions that come and go on one lake server, no kill, and what grows (MINUTES=60 SESSIONS=2000)
	PYTHONPATH=. $(BIN)/python -P -m tests.soak.quiet --minutes $(or $(MINUTES),60) --sessions $(or $(SESSIONS),2000)

bench: setup ## measure beside PostgreSQL's own subscriber (15 minutes; CASE=name SCALE=1); renews docs/performance.md
	PYTHONPATH=. $(BIN)/python -P -m tests.bench.run --only "$(CASE)" --scale $(or $(SCALE),1)
	$(BIN)/python -P docs/make_performance.py
	$(BIN)/python -P docs/make_scaling.py

bench-long: setup ## the same for what is large, long or wide (an hour and a half, 30 GB of disk; CASE=name SCALE=1)
	PYTHONPATH=. $(BIN)/python -P -m tests.bench.run --long --only "$(CASE)" --scale $(or $(SCALE),1)
	$(BIN)/python -P docs/make_performance.py
	$(BIN)/python -P docs/make_scaling.py

bench-quick: setup ## a tenth of `make bench` against what is on record; fails where a ratio halved
	PYTHONPATH=. $(BIN)/python -P -m tests.bench.run --quick

bench-lake: setup ## copies, changes and freshness on S3 behind a REST catalog, and with 30 ms more a request (an hour; needs Go once; CASE=name PLACE=s3 SCALE=1)
	PYTHONPATH=. $(BIN)/python -P -m tests.bench.lake --only "$(CASE)" --place "$(PLACE)" --scale $(or $(SCALE),1)
	$(BIN)/python -P docs/make_performance.py

bench-cluster: setup ## a copy of 10 M rows, compaction and small batches on a Spark cluster, beside the embedded server (10 minutes; needs Go once; CASE=copy SCALE=1)
	PYTHONPATH=. $(BIN)/python -P -m tests.bench.cluster --only "$(CASE)" --scale $(or $(SCALE),1)
	$(BIN)/python -P docs/make_scaling.py

lock: ## renew requirements.lock (needs uv)
	uv pip compile pyproject.toml --extra embedded --group dev --universal --upgrade \
	  --generate-hashes --no-annotate --no-header --no-emit-index-url --quiet -o requirements.lock

clean: ## remove .venv, caches and the demo's data
	rm -rf .venv pgsub_data dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
