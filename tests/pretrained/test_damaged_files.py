"""Every file of a model of another program, damaged at random: one line that names the folder, or a
model."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest
from safetensors.numpy import save_file
from test_pretrained import (
    HUGGING_FACE,
    MARIAN,
    PAIRS,
    hugging_face_arrays,
    marian_arrays,
    pieces_of,
    save_marian,
    save_vocab_yml,
    train_sentencepiece,
)

MARIAN_FILES = ("opus.npz", "opus.vocab.yml", "source.spm", "decoder.yml")
HUGGING_FACE_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "vocab.json",
    "target.spm",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of Marian and one of Hugging Face, with tiny models."""
    marian, hugging_face = (
        tmp_path_factory.mktemp("marian"),
        tmp_path_factory.mktemp("hugging_face"),
    )
    pieces = {"</s>": None, "<unk>": None}
    for side, name in enumerate(("source", "target")):
        # One has a map of characters, of 240,000 bytes, the other has none.
        rule = {"normalization_rule_name": ("nmt_nfkc", "identity")[side]}
        pieces |= dict.fromkeys(
            pieces_of(
                train_sentencepiece(
                    [pair[side] for pair in PAIRS], marian / f"{name}.spm", 200, **rule
                )
            )
        )
        (hugging_face / f"{('target', 'source')[side]}.spm").write_bytes(
            (marian / f"{name}.spm").read_bytes()
        )
    save_vocab_yml(marian / "opus.vocab.yml", pieces)
    options = {**MARIAN, "enc-depth": 1, "dim-vocabs": [len(pieces)] * 2}
    save_marian(marian / "opus.npz", options, marian_arrays(options, len(pieces)))
    (marian / "decoder.yml").write_text(
        "models: [a]\nvocabs: [opus.vocab.yml]\nbeam-size: 5\nnormalize: 1\n"
    )

    (hugging_face / "vocab.json").write_text(
        json.dumps({piece: i for i, piece in enumerate([*pieces, "<pad>"])})
    )
    size = len(pieces) + 1
    config = {
        **HUGGING_FACE,
        "vocab_size": size,
        "decoder_start_token_id": size - 1,
        "dropout": 0.1,
    }
    (hugging_face / "config.json").write_text(json.dumps(config))
    (hugging_face / "generation_config.json").write_text(
        json.dumps({"num_beams": 4, "length_penalty": 1.0})
    )
    save_file(hugging_face_arrays(size, 4, 4), hugging_face / "model.safetensors")
    return marian, hugging_face


def check(folder, name, number):
    """Runs trials in a process of its own, and checks what came of each."""
    script = pathlib.Path(__file__).with_name("damage_trials.py")
    finished = subprocess.run(
        [sys.executable, str(script), str(folder), name, str(number)],
        capture_output=True,
        text=True,
    )
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    if finished.returncode:
        ended = (
            signal.strsignal(-finished.returncode)
            if finished.returncode < 0
            else finished.stderr[-3000:]
        )
        pytest.fail(f"{name}, {lines[-1:]}: {ended}")
    results = lines[1::2]
    assert [result["seed"] for result in results] == list(range(number))
    for result in results:
        message, copied = result["message"], result["folder"]
        assert message is None or (message.startswith(copied) and len(message.splitlines()) == 1), (
            result
        )
        assert result["grown"] < 1e9, result
        if result["seed"] % 10 == 0:
            is_one_line = result["printed"].startswith(f"keras-transformer import: error: {copied}")
            is_one_line = is_one_line and result["printed"].count("\n") == 1
            assert (
                (result["printed"], result["code"]) == ("", 0) if message is None else is_one_line
            ), result
            assert result["code"] == (0 if message is None else 1), result
    # The damage is real, and mostly noticed.
    assert sum(result["message"] is not None for result in results) >= number / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MARIAN_FILES, *HUGGING_FACE_FILES])
def test_each_of_500_damages_has_one_line(folders, name):
    check(folders[name in HUGGING_FACE_FILES], name, 500)
