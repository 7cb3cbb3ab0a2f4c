# Every target sets up what it needs, in .venv; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp says that .venv holds what this pyproject.toml asks for.
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-faults demo-tap test test-compiler test-sweeps test-all coverage test-pythons test-newest regen regen-check lint format bench interop spark-versions test-pure sanitize test-wheel torture powercut attack fuzz site structure clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The environment of test-compiler: no Spark, no clients of Kafka. LEFT_OUT lists the tests that need other packages,
# searches that take minutes, and the tests of the reference that krammar docs writes.
SMALL := .venv-compiler
LEFT_OUT := compiler/test_backends compiler/test_evolution compiler/test_hostile_definitions \
  compiler/test_reference compiler/test_reference_browser compiler/test_wireshark generated/test_checked generated/test_hostile generated/test_notation \
  generated/test_coverage generated/test_frames generated/test_oracles generated/test_record_classes \
  wire/test_arrow wire/test_bounds wire/test_compression wire/test_message_sets wire/test_records

setup: $(STAMP) ## Create .venv with everything that development needs

$(STAMP): pyproject.toml $(wildcard krammar/wire/engine/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "krammar needs Python 3.11 or newer; set PYTHON=/path/to/it"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[all]' --group dev
	@touch $(STAMP)

demo: setup ## Generate everything, then stream a day of orders through broker, clients and Spark
	$(BIN)/krammar gen definitions/ -o generated/
	$(BIN)/python -m examples.pipeline

demo-faults: setup ## Run the demo in a random storm of faults (SEED=…): every order is counted once
	$(BIN)/krammar gen definitions/ -o generated/
	$(BIN)/python -m examples.pipeline --storm $(SEED)

demo-tap: setup ## Generate everything, then tap real clients: every frame decoded and re-encoded
	$(BIN)/krammar gen definitions/ -o generated/
	$(BIN)/python examples/tap_demo.py

test: setup ## Run the tests
	$(BIN)/python -m tests.run -n auto --dist loadgroup

$(SMALL)/.installed: pyproject.toml
	@test -x $(SMALL)/bin/python || $(PYTHON) -m venv $(SMALL)
	$(SMALL)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(SMALL)/bin/python -m pip install --quiet --editable '.[compiler]' --group compiler-tests
	@touch $(SMALL)/.installed

test-compiler: $(SMALL)/.installed ## Run the tests of compiler, wire and generated code in a small environment (no Java)
	$(SMALL)/bin/python -m pytest -n auto $(LEFT_OUT:%=--ignore=tests/%.py) $(or $(TESTS),tests/compiler tests/wire tests/generated)

test-sweeps: setup ## Run the long searches that `make test` leaves out (MARKS=sweep: without those that take an hour)
	$(BIN)/python -m tests.run -n auto --dist loadgroup -m "$(or $(MARKS),sweep or search)"

test-all: setup ## Run both at once
	$(BIN)/python -m tests.run -n auto --dist loadgroup -m ""

coverage: setup ## Measure which lines and branches of krammar all tests run (TESTS=tests/cli: only some)
	$(BIN)/python -m tests.covered -n auto --dist loadgroup -m "" $(TESTS)

test-pythons: setup ## Run the tests on every CPython from 3.11 to 3.14 found (pyenv, PATH)
	$(BIN)/python -m tests.pythons

test-newest: setup ## Run the tests without Spark on the newest CPython found, if newer than that of .venv
	$(BIN)/python -m tests.pythons --newest

regen: setup ## Write generated/ from definitions/ and templates/
	$(BIN)/krammar gen definitions/ -o generated/

regen-check: setup ## Fail if generated/ is not current
	$(BIN)/krammar gen definitions/ -o generated/ --check

lint: setup ## Check definitions, formatting, style, types, imports, names and licences
	$(BIN)/krammar check definitions/ --strict
	$(BIN)/krammar fmt definitions/ --check
	$(BIN)/black --check --quiet krammar pyspark_krammar tests examples tools
	$(BIN)/ruff check krammar pyspark_krammar tests examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/architecture.py circles
	$(BIN)/python tools/names.py
	$(BIN)/python tools/test_rules.py
	$(BIN)/python tools/licences.py check
	$(BIN)/python tools/engine.py check

format: setup ## Format definitions and Python
	$(BIN)/krammar fmt definitions/
	$(BIN)/black --quiet krammar pyspark_krammar tests examples tools
	$(BIN)/ruff check --fix --quiet krammar pyspark_krammar tests examples tools

bench: setup ## Measure against other libraries and brokers; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.fetch_cost
	$(BIN)/python -m tests.bench.broker
	$(BIN)/python -m tests.bench.share
	$(BIN)/python -m tests.bench.limits
	$(BIN)/python -m tests.bench.spark
	$(BIN)/python -m tests.bench.spark.short
	$(BIN)/python -m tests.bench.spark.size
	$(BIN)/python -m tests.bench.scale
	$(BIN)/python -m tests.bench.journal
	$(BIN)/python -m tests.bench.tap
	$(BIN)/python -m tests.bench.proxy
	$(BIN)/python -m tests.bench.charts

interop: setup ## Test broker and Spark with Apache Kafka, its tools, Spark's connector, kafkajs and applications (Maven, Node, Go)
	$(BIN)/python -m pytest --timeout 3600 tests/interop

spark-versions: setup ## Run Spark's tests with PySpark 4.1 and 4.2
	$(BIN)/python -m tests.spark.versions

test-pure: setup ## Run the tests of generated code and record batches in pure Python, without the engine
	KRAMMAR_PURE_PYTHON=1 $(BIN)/python -m tests.run -n auto --dist loadgroup tests/generated tests/wire tests/compiler/test_forms.py

sanitize: setup ## Run the engine's tests with AddressSanitizer and UndefinedBehaviorSanitizer (gcc)
	$(BIN)/python tools/engine.py sanitize

test-wheel: setup ## Build the wheel of a release, install it into an empty environment, and run tests with it
	$(BIN)/python -m pip install --quiet --group wheel
	$(BIN)/python -m tests.wheel

torture: setup ## Kill the broker under load ROUNDS times (default 500) and look for lost and duplicate records
	$(BIN)/python -m tests.broker.torture --rounds $(or $(ROUNDS),500)

powercut: setup ## Run broker, share groups, journals, Spark's sink and gen on all states that power cuts can leave (needs strace)
	$(BIN)/python -m tests.powercut --every $(or $(EVERY),1)

attack: setup ## Attack every server in every build, and print the costs (hours; python -m tests.attack --help)
	$(BIN)/python -m tests.broker.attacks
	$(BIN)/python -m tests.attack

fuzz: setup ## Fuzz decoding with atheris for SECONDS (default 300)
	$(BIN)/python -m pip install --quiet 'atheris>=3.0'
	$(BIN)/python -m tests.fuzz.fuzz_decode --seconds $(or $(SECONDS),300)

site: setup ## Build the documentation site in build/site; broken links are errors
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/krammar docs definitions/ -o docs/protocol
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

structure: setup ## Print circles of imports, what each package spreads over files, and the files of four operations
	$(BIN)/python tools/architecture.py

clean: ## Remove .venv and caches
	rm -rf $(VENV) $(SMALL) docs/protocol .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis dist build
