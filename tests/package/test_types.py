"""Tests of the types that an editor finds: pyright, as strict as Keras allows, on a user's file."""

import json
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

import keras_transformer

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Keras has no types of its own, so that what its functions return is unknown.
SETTINGS = {
    "typeCheckingMode": "strict",
    "reportMissingTypeStubs": False,
    "reportUnknownArgumentType": False,
    "reportUnknownMemberType": False,
    "reportUnknownVariableType": False,
}
EVERY_NAME = ", ".join(sorted({*keras_transformer.__all__, "Translator"}))
RIGHT = f"""
from typing import Any

import keras
import numpy as np

import keras_transformer
from keras_transformer import {EVERY_NAME}

print({EVERY_NAME})
version: str = keras_transformer.__version__
policy = keras.DTypePolicy("mixed_bfloat16")

# Functional, as in the README.
token_ids = keras.Input((None,), dtype="int32")
embedding = PositionalEmbedding(vocab_size=8000, d_model=128, padding_id=None, name="tokens", dtype=policy)
hidden = embedding(token_ids, start_index=3)
hidden = EncoderLayer(num_heads=4, d_ff=512, trainable=False)(hidden, training=True)
hidden = Encoder(2, num_heads=4, d_ff=512, dtype="float32")(hidden, mask=None)
hidden = PositionalEncoding("rotary")(hidden, start_index=1)
hidden = FeedForward(512, activation="gelu")(hidden)
hidden = FeedForward(512, activation=keras.activations.gelu)(keras.ops.relu(hidden))
attended = MultiHeadAttention(num_heads=4, key_dim=32)(hidden, hidden, use_causal_mask=True)
attended, scores = MultiHeadAttention(4, 32, kernel_initializer=keras.initializers.HeNormal())(
    hidden, attended, return_attention_scores=True
)
decoded = DecoderLayer(num_heads=4, d_ff=512)(hidden, attended, source_mask=None)
decoded = Decoder(2, num_heads=4, d_ff=512, name="decoder")(hidden + decoded, attended[:, 1:])
logits = TiedProjection(embedding)(decoded)
logits = TiedProjection(keras.layers.Embedding(10, 4))(logits)
model = keras.Model(token_ids, logits)
schedule = WarmupInverseSqrt(d_model=128)
loss = MaskedLabelSmoothedCrossentropy(0.1)
model.compile(keras.optimizers.Adam(schedule), loss, metrics=[MaskedAccuracy(), Perplexity(name="perplexity")])
model.fit(np.zeros((2, 3)), np.zeros((2, 3)))
width: int = embedding.d_model


# Subclassed.
class Classifier(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(num_layers=2, num_heads=4, d_ff=512)
        self.dense = keras.layers.Dense(2)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.dense(self.encoder(inputs, training=training)[:, 0])


# Whole models.
config = TransformerConfig.preset("base", source_vocab_size=37000, target_vocab_size=37000, num_layers=2)
transformer: Transformer = build_transformer(config)
transformer.compile("adam", loss)
logits = transformer({{"source": np.zeros((2, 3)), "target": np.zeros((2, 3))}})
layers: int = config.num_layers
lines: list[str] = Translator.load("models/en-de")(["A dog runs."])
"""
# Each line has one error, of the rule after it. As in all Keras layers, other keywords are for the
# base class, and calls go through it: mistakes there are errors when the program runs.
WRONG = """
import keras_transformer
from keras_transformer import EncoderLayr  # reportAttributeAccessIssue
from keras_transformer import Decoder, EncoderLayer, FeedForward, MaskedAccuracy, MultiHeadAttention
from keras_transformer import PositionalEmbedding, PositionalEncoding, TransformerConfig

print(EncoderLayr, keras_transformer.Encodr)  # reportAttributeAccessIssue
EncoderLayer(4)  # reportCallIssue
EncoderLayer("4", 512)  # reportArgumentType
Decoder(2, 4, 512, norm_first=0.5)  # reportArgumentType
MultiHeadAttention(4)  # reportCallIssue
FeedForward(512, activation=3)  # reportArgumentType
PositionalEmbedding(10, 6, positions="sin")  # reportArgumentType
PositionalEncoding(max_length="5")  # reportArgumentType
MaskedAccuracy(names="accuracy")  # reportCallIssue
TransformerConfig(8, 8, d_modell=4)  # reportCallIssue
TransformerConfig(8, 8, d_model="4")  # reportArgumentType
"""


@pytest.fixture(scope="module")
def diagnostics(tmp_path_factory):
    """For each file the lines that pyright complains about, and by which rule."""
    folder = tmp_path_factory.mktemp("user")
    # An environment with everything but the checkout, and the package as it is in the wheel.
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages"))
    )
    shutil.copytree(ROOT / "keras_transformer", site / "keras_transformer")
    (folder / "pyrightconfig.json").write_text(json.dumps(SETTINGS))
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(WRONG)
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        folder / "venv/bin/python",
    ]
    finished = subprocess.run(
        [*command, "right.py", "wrong.py"], cwd=folder, capture_output=True, text=True
    )
    assert finished.stdout.startswith("{"), finished.stdout + finished.stderr
    by_file = {"right.py": [], "wrong.py": []}
    for diagnostic in json.loads(finished.stdout)["generalDiagnostics"]:
        line = diagnostic["range"]["start"]["line"]
        by_file[pathlib.Path(diagnostic["file"]).name].append(
            (line, diagnostic.get("rule"), diagnostic["message"])
        )
    return by_file


@pytest.mark.slow
def test_what_is_right_has_no_error(diagnostics):
    assert diagnostics["right.py"] == []


@pytest.mark.slow
def test_a_wrong_name_argument_or_type_is_one_error(diagnostics):
    expected = [
        (number, rule.strip())
        for number, line in enumerate(WRONG.splitlines())
        for _, separator, rule in [line.partition("  # ")]
        if separator
    ]
    assert [(line, rule) for line, rule, _ in diagnostics["wrong.py"]] == expected, diagnostics[
        "wrong.py"
    ]


def test_the_readme_installs_the_package_so_that_its_types_are_found():
    # Python finds an editable install by an import hook, which pyright does not run.
    commands = [
        line
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if "pip install" in line
    ]
    assert commands and not [line for line in commands if " -e " in line or "--editable" in line]
