# `make demo`, `make test`, `make test-all`, `make lint`, `make bench` and `make chaos` work from a fresh clone: each makes .venv and
# installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all lint format bench chaos clean

demo: $(VENV)/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh demo

# Each file is tested by one process, in the order of tests/conftest.py. In two runs, because TensorFlow gives back little
# of the memory that it took: in `make test`, a process held 2.2 GB at most.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
FIRST_TESTS := $(patsubst %,tests/test_%.py,training reliability backends table3 layers_in_other_models cli \
	servable importing decoding_benchmark)
OTHER_TESTS := $(filter-out $(FIRST_TESTS),$(wildcard tests/test_*.py))

test: $(VENV)/installed-test
	$(PYTEST) $(FIRST_TESTS); first=$$?; $(PYTEST) $(OTHER_TESTS) && exit $$first

# All tests: those of `make test` and those that are marked slow.
test-all: $(VENV)/installed-test
	$(PYTEST) -m "" $(FIRST_TESTS); first=$$?; $(PYTEST) -m "" $(OTHER_TESTS) && exit $$first

# The directions of imports are checked on the package as it is installed: training/ and export/ are parts of it.
lint: $(VENV)/installed-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	rm -rf build/lint && mkdir -p build/lint
	cp -r keras_transformer build/lint && cp -r training export build/lint/keras_transformer
	cd build/lint && PYTHONPATH=. $(CURDIR)/$(BIN)/lint-imports --no-logo --config $(CURDIR)/pyproject.toml

format: $(VENV)/installed-lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# A quick look; docs/performance.md says how to measure. DATA is a directory of text, by default generated; MODEL is the
# directory of a trained model, without which decoding is left out.
bench: $(VENV)/installed-benchmarks
	$(BIN)/python -m benchmarks.training $(DATA:%=--data %) --pairs 3000 --repeats 1 --json bench/training.json
	$(if $(MODEL),$(BIN)/python -m benchmarks.decoding --model-dir $(MODEL) $(DATA:%=--data %) --sentences 64 --repeats 1 --json bench/decoding.json)
	$(BIN)/python -m benchmarks.startup $(DATA:%=--data %) --json bench/startup.json
	$(BIN)/python -m benchmarks.memory $(DATA:%=--data %) --steps 20 --lines 100000 --json bench/memory.json

# Trainings with random faults, resumed; about 15 minutes on two cores. docs/reliability.md has its figures.
chaos: $(VENV)/installed
	$(BIN)/python -m benchmarks.chaos --runs 50

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing TensorFlow and the rest into $(VENV); this takes a minute or two."
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-%: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) bench demo build dist *.egg-info
