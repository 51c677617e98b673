# `make demo` and `make test` work from a fresh clone: each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test clean

demo: $(VENV)/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh demo

test: $(VENV)/installed-test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing TensorFlow and the rest into $(VENV); this takes a minute or two."
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) demo build dist *.egg-info
