# Each target works from a fresh clone: it makes .venv, or an environment of its own, and installs what it needs.
# CONTRIBUTING.md says what each is for.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports; compiling all of TensorFlow takes half a minute.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := install --quiet --no-compile --disable-pip-version-check

.PHONY: demo test test-all test-notebooks test-beam test-jax test-torch test-keras test-servers lint docs pictures wheel chaos

demo: $(VENV)/installed
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh demo

# Each file is tested by one process, in order: those of examples and translation take long, and begin before those of
# layers and training. What many tests translate with is trained and exported once, into build/tests.
IN_PARALLEL := --numprocesses 2 --dist loadfile --no-loadscope-reorder
ALL_FOLDERS := $(sort $(dir $(wildcard tests/*/test_*.py tests/*/*/test_*.py)))
FOLDERS := $(filter-out tests/training/%,$(ALL_FOLDERS)) $(filter tests/training/%,$(ALL_FOLDERS))

# XLA compiles searches for a test that runs them a few times: optimizing them takes longer than they run.
test: $(VENV)/installed-test
	XLA_FLAGS=--xla_backend_optimization_level=0 $(BIN)/python -m pytest $(IN_PARALLEL) $(FOLDERS)

# The tests of `make test` and those that are marked slow. TensorFlow gives back little of the memory that it took, so
# new processes begin after each twelve folders.
test-all: $(VENV)/installed-test
	echo $(FOLDERS) | xargs -n 12 $(BIN)/python -m pytest $(IN_PARALLEL) -m "not long"

# The notebooks of the examples, with short runs: each begins a process, and loads Keras.
test-notebooks: $(VENV)/installed-test
	$(BIN)/python -m pytest $(IN_PARALLEL) -m slow tests/examples/test_notebooks.py

# The pipeline on Apache Beam, whose packages do not fit beside those of the other tests.
test-beam: $(VENV)-beam/installed
	$(VENV)-beam/bin/python -m pytest tests/examples/test_translate_corpus.py

# Layers, models, search and the examples of the layers on Keras and one backend alone, installed as the README says.
# PyTorch from PyPI brings gigabytes of libraries for GPUs; TORCH names another requirement than `torch`.
# JAX compiles every operation of a test anew, so that it has fewer of them, and no time for optimizing what it compiles.
# PyTorch's threads wait for each other in loops: each of the two processes has one.
LIGHT_TESTS := tests/package/light_install.py tests/package/test_loss_metrics_schedule.py tests/package/test_masks.py \
	tests/examples/test_layers_page.py
LIGHT_TESTS_jax := tests/layers/test_encoder_decoder_layers.py tests/layers/test_keras_idioms.py \
	tests/layers/test_layer_normalization.py tests/layers/test_tied_projection.py tests/layers/test_blocks_page.py \
	tests/layers/test_positional_embedding.py tests/layers/test_multi_head_attention.py::test_equals_numpy \
	tests/layers/test_masks_of_layers.py tests/layers/test_argument_hints.py \
	tests/decoding/test_protocol.py \
	tests/decoding/test_search_in_graphs.py::test_a_compiled_search_equals_a_plain_one
# On the newest Keras alone.
NEWEST_TESTS_jax := tests/layers/test_masked_positions.py tests/layers/test_position_schemes.py \
	tests/layers/test_positional_encoding.py tests/layers/test_score_bias.py \
	tests/examples/test_layer_examples.py::test_a_short_run_learns_something[training_loops]
LIGHT_TESTS_torch := tests/examples/test_layer_examples.py $(wildcard tests/layers/test_*.py) $(wildcard tests/decoding/test_*.py) \
	tests/interchange/test_keras_attention.py tests/interchange/test_pytorch.py \
	tests/models/test_generation.py tests/models/test_transformer_model.py \
	tests/models/test_full_passes.py tests/models/test_token_stream.py

test-jax test-torch: test-%: $(VENV)-%/installed
	rm -rf build/lib
	$(VENV)-$*/bin/pip $(INSTALL) --force-reinstall --no-deps .
	KERAS_BACKEND=$* PYTHONPATH=tests XLA_FLAGS=--xla_backend_optimization_level=0 OMP_NUM_THREADS=1 \
		$(VENV)-$*/bin/pytest --noconftest $(IN_PARALLEL) $(LIGHT_TESTS) $(LIGHT_TESTS_$*) \
		$(NEWEST_TESTS_$*)

# The oldest release of Keras that setup.cfg allows, and the last one of each later minor release, on JAX and TensorFlow,
# each in an environment of its own, of 2 GB.
KERAS_BACKENDS := jax tensorflow
KERAS_RELEASES := 3.12 3.13 3.14 3.15
KERAS_3.12 := keras==3.12.0
KERAS_3.13 := keras~=3.13.0
KERAS_3.14 := keras~=3.14.0
KERAS_3.15 := keras~=3.15.0
KERAS_TESTS := tests/package/light_install.py::test_the_layers_train_are_saved_and_load \
	tests/package/light_install.py::test_a_transformer_trains_is_saved_loads_and_is_searched \
	tests/package/test_loss_metrics_schedule.py tests/package/test_masks.py tests/interchange/test_keras_attention.py \
	$(LIGHT_TESTS_jax) tests/models/test_generation.py::test_a_language_model_of_replaced_parts_is_saved_loads_and_generates_the_same

test-keras: $(KERAS_RELEASES:%=test-keras-%)

$(KERAS_RELEASES:%=test-keras-%): test-keras-%: $(VENV)-keras-%/installed
	rm -rf build/lib
	$(VENV)-keras-$*/bin/pip $(INSTALL) --force-reinstall --no-deps .
	for backend in $(KERAS_BACKENDS); do \
		KERAS_BACKEND=$$backend PYTHONPATH=tests XLA_FLAGS=--xla_backend_optimization_level=0 \
			$(VENV)-keras-$*/bin/pytest --noconftest $(KERAS_TESTS) || exit 1; \
	done

$(VENV)-keras-%/installed: Makefile setup.cfg pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip $(INSTALL) . '$(KERAS_$*)' $(PYTEST_PACKAGES) $(JAX) $(TENSORFLOW)
	touch $@

# A SavedModel with the TensorFlow of each release of TensorFlow Serving from 2.16 on, and with the tensorflow-text 2.12
# that most of them link, each in an environment of its own, of 2 GB. The oldest needs Python 3.11.
SERVERS := $(patsubst %,$(VENV)-servers-%,2.12 2.16 2.17 2.18 2.19 2.20 2.21)
PACKAGES_2.12 := tensorflow==2.12.1 tensorflow-text==2.12.1
PACKAGES_2.16 := tensorflow==2.16.1 tensorflow-text==2.16.1
PACKAGES_2.17 := tensorflow==2.17.0 tensorflow-text==2.17.0
PACKAGES_2.18 := tensorflow==2.18.0 tensorflow-text==2.18.0
PACKAGES_2.19 := tensorflow==2.19.1 tensorflow-text==2.19.0
PACKAGES_2.20 := tensorflow==2.20.0 tensorflow-text==2.20.1
PACKAGES_2.21 := tensorflow==2.21.0 tensorflow-text==2.21.1

test-servers: $(VENV)/installed-test $(SERVERS:%=%/installed)
	$(BIN)/python -m pytest -m "" tests/export/test_server_versions.py

$(VENV)-servers-%/installed: Makefile
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip $(INSTALL) $(PACKAGES_$*)
	touch $@

# keras_transformer/training and keras_transformer/export are links: as parts of the package, their files are checked once.
lint: $(VENV)/installed-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python .ci/prose.py
	$(BIN)/mypy -p keras_transformer
	PYTHONPATH=. $(BIN)/lint-imports --no-logo

# The documentation as a site, in build/docs. Warnings fail; with --quiet, MkDocs would not count them.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The pictures in the documentation: what the layers compute, what was measured, and the demo's model; and its pages, for
# which it needs the programs chromium and chromedriver.
pictures: $(VENV)/installed demo/model
	$(BIN)/python -m docs.pictures demo/model docs/assets
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=tests $(BIN)/python -m docs.screenshots demo/model docs/assets

# The package in one file, for pip on another machine: dist/keras3_transformer-VERSION-py3-none-any.whl.
wheel:
	$(PYTHON) -m venv build/wheel
	rm -rf build/lib dist/*.whl
	build/wheel/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@echo "Install it with: pip install '$$(ls dist/*.whl)[translation,plots]'"

demo/model:
	$(MAKE) demo

# Training runs with random faults, resumed; about 10 minutes on two cores. docs/notes/2026-11-27-reliability.md has its figures.
chaos: $(VENV)/installed
	$(BIN)/python tests/training/run/chaos.py --runs 50

$(VENV)/installed: $(VENV)/installed-plots
	touch $@

$(VENV)-beam/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)-beam
	$(VENV)-beam/bin/pip $(INSTALL) --editable '.[translation,beam]' 'pytest>=8,<10'
	touch $@

JAX := 'jax>=0.10,<0.13'
TENSORFLOW := 'tensorflow>=2.21,<2.22'
PYTEST_PACKAGES := 'pytest>=8,<10' 'pytest-xdist>=3.7,<4'
TORCH ?= torch

$(VENV)-jax/installed $(VENV)-torch/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip $(INSTALL) . $(PYTEST_PACKAGES) $(if $(findstring jax,$@),$(JAX),'$(TORCH)')
	touch $@

$(VENV)/installed-%: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "Installing TensorFlow and the rest into $(VENV); this takes a minute or two."
	$(BIN)/pip $(INSTALL) --editable '.[translation,plots,$*]'
	touch $@
