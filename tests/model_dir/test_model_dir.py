"""The version of a model directory's format, and the scores in it: only those of its weights."""

import errno
import fcntl
import json
import os
import stat

import pytest

from keras_transformer import TransformerConfig
from keras_transformer.config import Config
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import replacing
from keras_transformer.training.recipe import load_recipe
from keras_transformer.translation import Translator

CONFIG = Config(TransformerConfig.preset("tiny", source_vocab_size=100, target_vocab_size=100))


@pytest.mark.parametrize(
    "line, received",
    [
        # What else a later release writes does not matter.
        ("format_version: 3\nnew: 1\n", "3"),
        ("format_version: 1\n", "1"),
        ("format_version: two\n", "'two'"),
        ("format_version:\n", "None"),
        ("", "None"),
    ],
)
def test_another_version_is_refused_in_one_line(tmp_path, line, received):
    model_dir = ModelDir(tmp_path)
    model_dir.write_config(CONFIG)
    version, rest = model_dir.config_path.read_text().split("\n", 1)
    assert version == "format_version: 2"
    model_dir.config_path.write_text(line + rest)
    with pytest.raises(ConfigError) as error:
        Translator.load(tmp_path)
    assert str(error.value) == (
        f"{model_dir.config_path}: format_version must be 2, the only version that this release of "
        f"keras3-transformer reads; "
        f"received format_version={received}"
    )


def test_the_version_is_not_a_setting(tmp_path):
    with pytest.raises(
        ConfigError, match="^--set format_version=3: --set must be given SECTION.KEY=VALUE; "
    ):
        load_recipe("demo", ["format_version=3"])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("format_version: 2\n")
    with pytest.raises(
        ConfigError,
        match="recipe.yaml, line 1: unknown configuration key 'format_version'; known keys: [^\n]*$",
    ):
        load_recipe(recipe)


@pytest.fixture
def with_weights(tmp_path):
    (tmp_path / "best.weights.h5").write_bytes(b"weights")
    return ModelDir(tmp_path)


def test_scores_are_those_of_the_weights(with_weights):
    assert with_weights.read_evaluation() == []
    with_weights.write_evaluation(
        "12 sentences of test.en", {"BLEU = 41.0": "tok:13a", "chrF2 = 65.1": "nc:6"}
    )
    expected = [
        "BLEU = 41.0 (tok:13a), 12 sentences of test.en",
        "chrF2 = 65.1 (nc:6), 12 sentences of test.en",
    ]
    assert with_weights.read_evaluation() == expected
    # An average takes the place of the best weights.
    with_weights.average_path.write_bytes(b"other weights")
    assert with_weights.read_evaluation() == []
    with_weights.average_path.write_bytes(b"weights")
    assert with_weights.read_evaluation() == expected


def test_a_text_whose_name_is_not_utf_8_has_scores(with_weights):
    with_weights.write_evaluation("12 sentences of \udcff.en", {"BLEU = 41.0": "tok:13a"})
    assert with_weights.read_evaluation() == ["BLEU = 41.0 (tok:13a), 12 sentences of ?.en"]


@pytest.mark.parametrize("content", ["", "[]", "{", "{}", json.dumps({"weights_sha256": None})])
def test_another_file_of_that_name_has_no_scores(with_weights, content):
    with_weights.evaluation_path.write_text(content)
    assert with_weights.read_evaluation() == []


def test_scores_that_cannot_be_written_are_a_warning(with_weights, capsys):
    with_weights.evaluation_path.mkdir()
    with_weights.write_evaluation("test.en", {"BLEU = 41.0": "tok:13a"})
    assert "model cards will not show the scores" in capsys.readouterr().err


def test_on_a_network_file_system_files_are_open_for_writing_when_they_are_locked(
    tmp_path, monkeypatch
):
    flock = fcntl.flock

    def flock_of_nfs(descriptor, operation):
        is_for_reading = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        if is_for_reading and stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_of_nfs)
    (tmp_path / ".writing-1-file").touch()
    (tmp_path / ".writing-2-folder").mkdir()
    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_symbolic_link_is_replaced_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "config.yaml").symlink_to(tmp_path / "precious")
    ModelDir(tmp_path).write_config(CONFIG)
    assert (tmp_path / "precious").read_text() == "kept"
    assert not (tmp_path / "config.yaml").is_symlink()
