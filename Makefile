# `make demo`, `make test` and `make bench` work from a fresh clone: each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test bench clean

demo: $(VENV)/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh demo

test: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

# A quick look; docs/architecture.md says how to measure. DATA is a directory of text, without it the embedded corpus;
# MODEL one of a trained model, without it no decoding.
bench: $(VENV)/installed-benchmarks
	$(BIN)/python -m benchmarks.training $(DATA:%=--data %) --pairs 3000 --repeats 1 --json bench/training.json
	$(if $(MODEL),$(BIN)/python -m benchmarks.decoding --model-dir $(MODEL) $(DATA:%=--data %) --sentences 64 --repeats 1 --json bench/decoding.json)
	$(BIN)/python -m benchmarks.startup $(DATA:%=--data %) --json bench/startup.json
	$(BIN)/python -m benchmarks.memory $(DATA:%=--data %) --steps 20 --lines 100000 --json bench/memory.json

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing TensorFlow and the rest into $(VENV); this takes a minute or two."
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

$(VENV)/installed-benchmarks: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[benchmarks]'
	touch $@

clean:
	rm -rf $(VENV) bench demo build dist *.egg-info
