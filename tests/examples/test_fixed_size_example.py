"""What `export --format litert` and `onnx` write translates as the translator does, with the example's program."""

import pathlib
import subprocess
import sys

import pytest
from conftest import sentence_pairs
from keras_transformer.export import fixed_size

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import VerificationError
from keras_transformer.translation import Translator

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "serving" / "translate_fixed_size.py"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["litert", "onnx"])
def test_an_encoder_and_a_decoder_of_fixed_size_translate_greedily(tiny_model_dir, tmp_path, format):
    assert len(EXAMPLE.read_text().splitlines()) <= 60
    sources = [source for source, _ in sentence_pairs()[::9]] + ["", "Zoë 🙂"]
    command = ["export", "--model-dir", str(tiny_model_dir), "--output", str(tmp_path), "--format", format]
    main([*command, "--length", "64"])
    finished = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "1")],
        input="".join(f"{source}\n" for source in sources),
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    greedy = Translator.load(tiny_model_dir, DecodingConfig(beam_size=1, max_extra_tokens=64))
    assert finished.stdout.splitlines() == greedy(sources)


@pytest.mark.slow
def test_files_that_compute_other_logits_are_not_published(tiny_model_dir, tmp_path, monkeypatch):
    load = fixed_size._load
    monkeypatch.setattr(
        fixed_size, "_load", lambda path: lambda **inputs: load(path)(**inputs) + (path.stem == "decoder") * 0.1
    )
    with pytest.raises(VerificationError, match="logits differ by 0.1 "):
        fixed_size.export_fixed_size(Translator.load(tiny_model_dir), tmp_path, "litert", 16)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--format", "litert", "--length", "65"], "length must be from 2 to 64; received length=65"),
        (["--length", "20"], "--length needs --format litert or onnx; received --format saved-model"),
        (
            ["--format", "onnx", "--beam-size", "2"],
            "--beam-size and --length-penalty must not be given with --format onnx",
        ),
        (
            ["--format", "litert", "--license", "MIT"],
            "--languages and --license must not be given with --format litert",
        ),
    ],
)
def test_what_files_of_fixed_size_cannot_have_is_one_line(tiny_model_dir, tmp_path, capsys, options, rule):
    with pytest.raises(SystemExit):
        main(["export", "--model-dir", str(tiny_model_dir), "--output", str(tmp_path / "out"), *options])
    assert rule in capsys.readouterr().err
    assert not (tmp_path / "out" / "1").exists()
