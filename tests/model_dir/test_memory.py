"""Models that do not fit into the memory of the machine are refused before anything of their size
is made."""

import os

import pytest
from fresh_process import run_python

from keras_transformer.config import Config, TrainingConfig, TransformerConfig
from keras_transformer.errors import MemoryLimitError
from keras_transformer.model_dir import ModelDir, directory
from keras_transformer.training.run.trainer import _require_memory

# 128 * 100,000 of the embeddings; in each of 12 attentions 4 heads * 128 * 2 * (100,000 + 100,000);
# in each of 8 feed-forward networks 2 * 128 * 256 weights and 256 + 128 biases; 20 normalizations
# of 2 * 128.
MODEL = TransformerConfig.preset(
    "tiny", source_vocab_size=100_000, target_vocab_size=100_000, key_dim=100_000
)
NUM_PARAMETERS = 12_800_000 + 12 * 204_800_000 + 8 * 65_920 + 20 * 256


@pytest.fixture
def machine(monkeypatch):
    def machine(size):
        monkeypatch.setattr(directory, "memory_size", lambda: size)

    return machine


def test_the_memory_is_that_of_the_machine_or_of_the_container(monkeypatch, tmp_path):
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(
        directory, "_CONTAINER_LIMITS", (tmp_path / "absent", tmp_path / "memory.max")
    )
    assert directory.memory_size() == physical
    for text, size in (
        ("max\n", physical),
        ("2147483648\n", 2**31),
        (f"{2**63 - 4096}\n", physical),
    ):
        (tmp_path / "memory.max").write_text(text)
        assert directory.memory_size() == size


def test_the_limit_is_what_the_parameters_take(machine):
    machine(2**30)
    directory.require_memory(2**26, 16, "to train")
    with pytest.raises(MemoryLimitError) as error:
        directory.require_memory(2**26 + 1, 16, "to train")
    assert str(error.value) == (
        "the sizes in the section model result in 67,108,865 parameters, which take at least 1.0 GiB "
        "of memory to train; "
        "this machine has 1.0 GiB"
    )


@pytest.mark.parametrize(
    ("training", "num_bytes"),
    [({}, 16), (dict(ema=0.9), 20), (dict(freeze="encoder"), 4), (dict(freeze="both", ema=0.9), 8)],
)
def test_training_takes_weights_gradients_moments_and_their_average(machine, training, num_bytes):
    assert MODEL.num_parameters == NUM_PARAMETERS
    config = Config(MODEL, training=TrainingConfig(**training))
    machine(NUM_PARAMETERS * num_bytes)
    _require_memory(config)
    machine(NUM_PARAMETERS * num_bytes - 1)
    with pytest.raises(
        MemoryLimitError,
        match="2,470,932,480 parameters, which take at least .* to train; this mac",
    ):
        _require_memory(config)


@pytest.mark.parametrize(("dtype", "num_bytes"), [("float32", 4), ("bfloat16", 2)])
def test_a_model_to_translate_with_takes_its_weights(
    machine, tmp_path, dtype, num_bytes, monkeypatch
):
    monkeypatch.setattr(
        "keras_transformer.models.build_transformer", lambda *args, **kwargs: "built"
    )
    monkeypatch.setattr(ModelDir, "load_weights", lambda *args: None)
    (tmp_path / "best.weights.h5").touch()
    machine(NUM_PARAMETERS * num_bytes)
    assert ModelDir(tmp_path).load_model(MODEL, dtype) == "built"
    machine(NUM_PARAMETERS * num_bytes - 1)
    with pytest.raises(
        MemoryLimitError, match="parameters, which take at least .* to translate; this machine has"
    ):
        ModelDir(tmp_path).load_model(MODEL, dtype)


TRAIN = """
import pathlib
import re
import sys
from keras_transformer.config import Config, TransformerConfig
from keras_transformer.errors import MemoryLimitError
from keras_transformer.model_dir import directory
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs

directory.memory_size = lambda: 2**34
model = TransformerConfig.preset("tiny", source_vocab_size=8000, target_vocab_size=8000, key_dim=100_000)
text = SentencePairs(["a"], ["b"], "text")
try:
    train(Config(model), text, text, sys.argv[1], make_strategy())
except MemoryLimitError as error:
    print(error)
    # Not `getrusage`, which counts what the process held before it became this program: as much as the tests' own.
    print(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
def test_a_training_run_that_does_not_fit_is_not_started(tmp_path):
    """In a process of its own, of which the most memory that it held is measured."""
    model_dir = tmp_path / "model"
    message, kibibytes = run_python("-c", TRAIN, model_dir).splitlines()[-2:]
    assert (
        message.endswith("of memory to train; this machine has 16.0 GiB") and int(kibibytes) < 2**21
    )
    assert not model_dir.exists()
