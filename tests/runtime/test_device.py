"""Which precision is chosen for a device."""

import time

import pytest
import tensorflow as tf
from fresh_process import run_python

from examples.corpus import generate
from keras_transformer.model_dir import ModelDir
from keras_transformer.runtime import device
from keras_transformer.runtime.device import choose_precision
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run import trainer
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs

AMX = "flags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile\n"
AVX512 = "flags\t\t: fpu avx512f avx512_bf16\n"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """Makes the machine one without a GPU whose /proc/cpuinfo has a text."""

    def set_cpu_info(text):
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor\t: 0\n{text}\nprocessor\t: 1\n{text}")
        monkeypatch.setattr(device, "_CPU_INFO", path)

    devices = tf.config.list_physical_devices
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind=None: [] if kind == "GPU" else devices(kind)
    )
    return set_cpu_info


@pytest.mark.parametrize(
    "cpu_info, expected, reason",
    [
        (AMX, "bfloat16", "this CPU has instructions that multiply bfloat16 matrices (AMX)"),
        (AVX512, "float32", "this CPU has no instructions that multiply bfloat16 matrices (AMX)"),
        # ARM has other names.
        (
            "Features\t: fp asimd bf16 i8mm\n",
            "float32",
            "this CPU has no instructions that multiply bfloat16 matrices (AMX)",
        ),
    ],
)
def test_the_instructions_of_a_cpu_decide(processor, cpu_info, expected, reason):
    processor(cpu_info)
    assert choose_precision() == choose_precision(training=True) == (expected, reason)


def test_a_system_that_does_not_list_instructions_is_given_float32(
    processor, monkeypatch, tmp_path
):
    monkeypatch.setattr(device, "_CPU_INFO", tmp_path / "missing")
    assert choose_precision()[0] == "float32"


@pytest.mark.parametrize("limit", ["AVX2", "avx2", "AVX512_CORE", "AVX512_CORE_BF16", "SSE41"])
def test_a_limit_that_leaves_out_amx_is_respected(processor, monkeypatch, limit):
    processor(AMX)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    reason = f"ONEDNN_MAX_CPU_ISA={limit.upper()} turns off this CPU's AMX instructions"
    assert choose_precision() == ("float32", reason)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx512_core_amx")
    assert choose_precision()[0] == "bfloat16"


def test_without_onednn_there_is_no_amx(processor, monkeypatch):
    processor(AMX)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    reason = "TF_ENABLE_ONEDNN_OPTS=0 turns off this CPU's AMX instructions"
    assert choose_precision() == ("float32", reason)


def test_a_choice_does_not_depend_on_the_clock(processor, monkeypatch):
    processor(AMX)
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, lambda: pytest.fail("the clock was read"))
    choose_precision()


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
    monkeypatch, capabilities, expected, expected_for_training, words
):
    details = {
        f"GPU:{i}": {"compute_capability": value} if value else {}
        for i, value in enumerate(capabilities)
    }
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: list(details) if kind == "GPU" else []
    )
    monkeypatch.setattr(tf.config.experimental, "get_device_details", details.get)
    for training in (False, True):
        chosen, reason = choose_precision(training=training)
        assert chosen == (expected_for_training if training else expected)
        assert f"this GPU (compute capability {words})" in reason
        # A GPU that is given less than bfloat16 is told when that came.
        assert (chosen == "bfloat16") != reason.endswith((" 8.0", " 7.0"))


@pytest.mark.slow
def test_a_resumed_training_keeps_its_precision(processor, tmp_path, capsys, monkeypatch):
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

    processor(AMX)
    chosen, log = resume("training.steps=1")
    assert chosen == "bfloat16" and "precision: bfloat16, because this CPU has" in log
    # As on a machine with another processor.
    processor(AVX512)
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
def test_with_a_limit_of_its_instructions_this_processor_is_given_float32():
    # A process of its own: the limit is read when oneDNN is loaded, and a product that it forbids
    # ends the process.
    script = (
        "from keras_transformer.runtime.device import choose_precision\n"
        "print(choose_precision()[0])\n"
    )
    assert run_python("-c", script, env={"ONEDNN_MAX_CPU_ISA": "AVX2"}).split()[-1:] == ["float32"]
