"""Which precision is chosen for a device."""

import pytest
import tensorflow as tf
from fresh_process import run_python

from examples.corpus import generate
from keras_transformer.config import TransformerConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.runtime import device
from keras_transformer.runtime.device import choose_precision
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run import trainer
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs

CONFIG = TransformerConfig(
    source_vocab_size=100, target_vocab_size=100, num_layers=1, d_model=256, d_ff=1024, num_heads=4
)


@pytest.fixture(autouse=True)
def no_limit(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


@pytest.fixture
def products(monkeypatch):
    """Sets the seconds of a product in each precision, and collects the shapes that are timed."""

    def set_seconds(**seconds):
        shapes = []

        def time_product(*arguments):
            *shape, dtype = arguments
            shapes.append(tuple(shape))
            return seconds[dtype]

        monkeypatch.setattr(device, "_time_product", time_product)
        return shapes

    return set_seconds


def test_a_processor_that_multiplies_bfloat16_much_faster_is_given_it(products):
    shapes = products(float32=0.004, bfloat16=0.001)
    assert choose_precision(CONFIG, 1000) == (
        "bfloat16",
        "matrix products in bfloat16 are 4.0 times as fast on this CPU",
    )
    assert shapes == [(1000, 256, 1024)] * 2


@pytest.mark.parametrize("bfloat16", [0.008, 0.004, 0.003])
def test_a_processor_that_gains_little_or_loses_is_given_float32(products, bfloat16):
    products(float32=0.004, bfloat16=bfloat16)
    chosen, reason = choose_precision(CONFIG, 1000)
    assert chosen == "float32"
    assert f"bfloat16 are {0.004 / bfloat16:.1f} times as fast on this CPU, not 2 times" in reason


def test_products_of_large_models_are_timed_with_fewer_rows(products):
    shapes = products(float32=0.004, bfloat16=0.001)
    big = TransformerConfig.preset("big", source_vocab_size=100, target_vocab_size=100)
    choose_precision(big, 100_000)
    assert shapes[0] == (64, 1024, 4096)


@pytest.mark.parametrize("limit", ["AVX2", "avx2", "AVX512_CORE", "SSE41"])
def test_a_limit_that_leaves_out_bfloat16_is_respected_without_a_product(
    products, monkeypatch, limit
):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    shapes = products(float32=0.004, bfloat16=0.001)
    assert choose_precision(CONFIG, 1000) == (
        "float32",
        f"ONEDNN_MAX_CPU_ISA={limit.upper()} leaves out the instructions for bfloat16",
    )
    assert shapes == []


@pytest.mark.parametrize(
    "capabilities, expected, expected_for_training, words",
    [
        ([(6, 1)], "float32", "float32", "6.1"),
        ([(7, 5)], "float32", "float16", "7.5"),
        ([(8, 0)], "bfloat16", "bfloat16", "8.0"),
        ([(9, 0), (7, 0)], "float32", "float16", "7.0"),
        ([(12, 0), (10, 0)], "bfloat16", "bfloat16", "10.0"),
        ([None], "float32", "float32", "0.0"),
    ],
)
def test_gpus_multiply_bfloat16_from_compute_capability_8_and_train_in_float16_from_7(
    products, monkeypatch, capabilities, expected, expected_for_training, words
):
    details = {
        f"GPU:{i}": {"compute_capability": value} if value else {}
        for i, value in enumerate(capabilities)
    }
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: list(details) if kind == "GPU" else []
    )
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details.get)
    shapes = products(float32=0.004, bfloat16=0.001)
    for training in (False, True):
        chosen, reason = choose_precision(CONFIG, 1000, training=training)
        assert chosen == (expected_for_training if training else expected)
        assert f"compute capability is {words};" in reason and shapes == []


@pytest.mark.slow
def test_a_resumed_training_keeps_its_precision(products, tmp_path, capsys, monkeypatch):
    def resume(*overrides):
        sizes = [
            "model.d_model=32",
            "model.d_ff=64",
            "model.num_heads=2",
            "tokenizer.vocab_size=400",
        ]
        config = load_recipe("demo", [*sizes, "training.tokens_per_batch=500", *overrides])
        text = SentencePairs(*map(list, zip(*generate(100, seed=3))), name="text")
        train(config, text, text, tmp_path, make_strategy())
        return ModelDir(tmp_path).read_config().training.precision, capsys.readouterr().err

    products(float32=0.004, bfloat16=0.001)
    chosen, log = resume("training.steps=1")
    assert chosen == "bfloat16" and "precision: bfloat16, because matrix products" in log
    # As on a machine with another processor.
    products(float32=0.001, bfloat16=0.004)
    chosen, log = resume("training.steps=2")
    assert (
        chosen == "bfloat16"
        and "precision: bfloat16, because this training run started with it" in log
    )
    # What was asked for is obeyed; it is written before the first step.
    monkeypatch.setattr(trainer, "run_loop", lambda *arguments: None)
    chosen, log = resume("training.steps=3", "training.precision=float32")
    assert chosen == "float32" and "precision:" not in log


@pytest.mark.slow
def test_this_processor_is_measured_and_with_a_limit_of_its_instructions_is_given_float32():
    chosen, reason = choose_precision(CONFIG, 1000)
    ratio = float(reason.partition(" are ")[2].split()[0])
    assert (
        chosen == ("bfloat16" if ratio >= device._MIN_RATIO else "float32") or abs(ratio - 2) < 0.06
    )
    # A process of its own: the limit is read when oneDNN is loaded, and a product that it forbids
    # ends the process.
    script = (
        "from keras_transformer.config import TransformerConfig\n"
        "from keras_transformer.runtime.device import choose_precision\n"
        "config = TransformerConfig.preset('tiny', source_vocab_size=100, target_vocab_size=100)\n"
        "print(choose_precision(config, 1000)[0])\n"
    )
    assert run_python("-c", script, env={"ONEDNN_MAX_CPU_ISA": "AVX2"}).split()[-1:] == ["float32"]
