"""The example of LiteRT and ONNX translates as the translator does."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from conftest import sentence_pairs

from keras_transformer.config import DecodingConfig
from keras_transformer.translation import Translator

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "serving" / "translate_fixed_size.py"
FORMATS = ["litert", *(["onnx"] if all(map(importlib.util.find_spec, ("onnxruntime", "tf2onnx"))) else [])]


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_an_encoder_and_a_decoder_of_fixed_size_translate_greedily(tiny_model_dir, tmp_path, format):
    assert len(EXAMPLE.read_text().splitlines()) <= 60
    sources = [source for source, _ in sentence_pairs()[::9]]
    command = [sys.executable, str(EXAMPLE), str(tiny_model_dir), str(tmp_path), format, "48"]
    finished = subprocess.run(
        command, input="".join(f"{source}\n" for source in sources), capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    greedy = Translator.load(tiny_model_dir, DecodingConfig(beam_size=1))
    assert finished.stdout.splitlines() == greedy(sources)
