# Every target sets up what it needs, in .venv; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp says that .venv holds what this pyproject.toml asks for.
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-tap test regen regen-check lint format bench interop spark-versions native test-native torture fuzz clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make .venv with everything that development needs

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "krammar needs Python 3.11 or newer; set PYTHON=/path/to/it"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP)

demo: setup ## Generate everything, then stream a day of orders through broker, clients and Spark
	$(BIN)/krammar gen definitions/ -o generated/
	$(BIN)/python -m examples.pipeline

demo-tap: setup ## Generate everything, then tap real clients: every frame decoded and re-encoded
	$(BIN)/krammar gen definitions/ -o generated/
	$(BIN)/python examples/tap_demo.py

test: setup ## Run the tests
	$(BIN)/python -m pytest -n auto --dist loadgroup

regen: setup ## Generate generated/ anew from definitions/
	$(BIN)/krammar gen definitions/ -o generated/

regen-check: setup ## Fail if generated/ is not what definitions/ say
	$(BIN)/krammar gen definitions/ -o generated/ --check

lint: setup ## Check definitions, formatting, style and types
	$(BIN)/krammar check definitions/ --strict
	$(BIN)/krammar fmt definitions/ --check
	$(BIN)/black --check --quiet krammar pyspark_krammar tests examples
	$(BIN)/ruff check krammar pyspark_krammar tests examples
	$(BIN)/mypy

format: setup ## Format definitions and Python
	$(BIN)/krammar fmt definitions/
	$(BIN)/black --quiet krammar pyspark_krammar tests examples
	$(BIN)/ruff check --fix --quiet krammar pyspark_krammar tests examples

bench: setup ## Measure against other libraries and brokers; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.broker
	$(BIN)/python -m tests.bench.spark
	$(BIN)/python -m tests.bench.journal
	$(BIN)/python -m tests.bench.native

interop: setup ## Try broker and Spark with Apache Kafka, its tools, Spark's connector and kafkajs (Maven, Node)
	$(BIN)/python -m pytest tests/interop

spark-versions: setup ## Run Spark's tests with PySpark 4.1 and 4.2
	$(BIN)/python -m tests.spark.versions

native: setup ## Compile kafka_wire and wafka_wire in place (C compiler; a quarter of an hour)
	$(BIN)/krammar compile generated/kafka_wire
	$(BIN)/krammar compile generated/wafka_wire

test-native: setup ## Run the tests of generated code with compiled packages
	$(BIN)/python -m tests.native

torture: setup ## Kill the broker under load ROUNDS times (default 500) and look for what is lost
	$(BIN)/python -m tests.broker.torture --rounds $(or $(ROUNDS),500)

fuzz: setup ## Fuzz decoding with atheris for SECONDS (default 300)
	$(BIN)/python -m pip install --quiet 'atheris>=3.0'
	$(BIN)/python -m tests.fuzz.fuzz_decode --seconds $(or $(SECONDS),300)

clean: ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
