"""The ONNX graphs against the model: the same logits at each step, and the same translations by the
guide's program."""

import pathlib
import re

import numpy as np
import onnxruntime
import pytest
from conftest import sentence_pairs
from fresh_process import run_python
from test_ctranslate2 import VOCABULARY, random_translator

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig
from keras_transformer.export.onnx import export_onnx
from keras_transformer.translation import Translator

ROOT = pathlib.Path(__file__).parents[2]
MODELS = {
    "rotary positions, RMS, GEGLU, grouped queries": dict(
        norm_first=True,
        positions="rotary",
        normalization="rms",
        gated=True,
        activation="gelu",
        num_heads=4,
        num_key_value_heads=2,
        query_key_norm=True,
    ),
    "sinusoids, untied, other sizes": dict(
        tie_embeddings="none",
        logits_bias=True,
        attention_bias=True,
        num_encoder_layers=3,
        num_decoder_layers=1,
        key_dim=5,
        value_dim=3,
    ),
    "learned positions": dict(positions="learned", activation="silu", norm_first=True),
    "ALiBi, one head of keys": dict(positions="alibi", num_key_value_heads=1),
    "one head": dict(positions="rotary", num_heads=1),
    "T5's biases, restricted attention": dict(positions="t5", sliding_window=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_each_step_has_the_logits_of_the_model_for_any_batch_and_lengths(name, tmp_path):
    translator = random_translator(**MODELS[name])
    path = export_onnx(translator, tmp_path)
    encoder, decoder = (
        onnxruntime.InferenceSession(path / f"{part}.onnx") for part in ("encoder", "decoder")
    )
    rng = np.random.default_rng(0)
    for lengths in ([5], [3, 9, 1]):
        source = np.zeros((len(lengths), max(lengths)), "int32")
        for row, length in zip(source, lengths):
            row[:length] = [*rng.integers(4, len(VOCABULARY), length - 1), 3]
        names = ["source_mask", "source_keys", "source_values"]
        feeds = dict(zip(names, encoder.run(names, {"source": source})))
        feeds |= {name: feeds[f"source_{name}"][:, :, :, :0] for name in ("keys", "values")}
        step, state = translator.model.start_decoding(source)
        token_ids = np.full(len(lengths), 2, "int32")
        for position in range(6):
            logits, feeds["keys"], feeds["values"] = decoder.run(
                ["logits", "next_keys", "next_values"], {**feeds, "token_ids": token_ids}
            )
            expected, state = step(
                token_ids[:, None], np.zeros((len(lengths), 1), "int32"), np.int32(position), state
            )
            np.testing.assert_allclose(logits, expected[:, 0], rtol=1e-5, atol=1e-5)
            token_ids = rng.integers(4, len(VOCABULARY), len(lengths)).astype("int32")


@pytest.mark.slow
def test_the_program_of_the_guide_translates_without_this_package(tiny_model_dir, tmp_path, capsys):
    main(
        [
            "export",
            "--model-dir",
            str(tiny_model_dir),
            "--output",
            str(tmp_path / "onnx/en-de"),
            "--format",
            "onnx",
        ]
    )
    assert capsys.readouterr().out == f"{tmp_path / 'onnx/en-de/1'}\n"
    page = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    *_, program = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(program.splitlines()) <= 60
    sources = [source for source, _ in sentence_pairs()]
    sources += [f"{first} {second}" for first, second in zip(sources, sources[7:] + sources[:7])]
    sources += [source[start:] for start in (1, 4) for source in sources[:50]]
    sources += ["", "  ", "Zoë\u2581greets\u241b 🙂", "the dog " * 40]
    translator = Translator.load(tiny_model_dir, DecodingConfig(beam_size=1, max_extra_tokens=50))
    program = program.replace(
        "MAX_LENGTH, MAX_EXTRA_TOKENS = 256",
        f"MAX_LENGTH, MAX_EXTRA_TOKENS = {translator.model.config.max_length}",
    )
    begin = (
        "import sys\nsys.modules.update(dict.fromkeys(['keras', 'keras_transformer', "
        "'tensorflow']))\n"
    )
    end = f"\nprint(ascii(translate({sources!r})))\n"
    printed = run_python("-c", begin + program + end, cwd=tmp_path).splitlines()
    assert len(sources) == 200
    assert eval(printed[1]) == translator(sources)
