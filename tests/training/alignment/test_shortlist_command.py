"""The command `align`, and `train` with `decoding.shortlist`: what they write, and how they
resume."""

import pathlib
import shutil

import numpy as np
import pytest
from conftest import sentence_pairs

from keras_transformer.commands.main import main
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.shortlist_file import read_shortlist
from keras_transformer.tokenizers import load_tokenizers
from keras_transformer.training.alignment import shortlist as shortlist_module


@pytest.fixture
def arguments(tiny_model_dir, tmp_path, text):
    """The command's arguments, for a copy of the model directory and the text that its model
    knows."""
    directory = shutil.copytree(tiny_model_dir, tmp_path / "model")
    given = ["build-shortlist", "--model-dir", str(directory)]
    for name, side in zip(("source", "target"), zip(*sentence_pairs())):
        given += [f"--{name}", text(name, [*side])]
    return given


def read(arguments):
    model_dir = ModelDir(arguments[2])
    tokenizer = load_tokenizers(model_dir.path, model_dir.read_config().tokenizer, "none").source
    sizes = [tokenizer.vocab_size] * 2
    return read_shortlist(model_dir.shortlist_path, *sizes, [tokenizer.file_content]), tokenizer


def translate(capsys, arguments, *options):
    path = pathlib.Path(arguments[4])
    with open(path) as file, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("sys.stdin", file)
        main(["translate", "--model-dir", arguments[2], "--n-best", "1", *options])
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_align_makes_a_shortlist_that_the_commands_use(arguments, capsys, tmp_path, monkeypatch):
    # So that the list leaves something out of this small vocabulary.
    monkeypatch.setattr(shortlist_module, "FREQUENT_PIECES", 5)
    monkeypatch.setattr(shortlist_module, "CANDIDATES_PER_PIECE", 12)
    without = translate(capsys, arguments)
    main([*arguments, "--links", str(tmp_path / "links")])
    assert "target tokens always" in capsys.readouterr().err
    shortlist, tokenizer = read(arguments)
    assert set(range(4)) <= set(shortlist.always.tolist()) and len(shortlist.always) <= 9
    for source, target in sentence_pairs():
        source_ids, target_ids = tokenizer.tokenize([source, target]).to_list()
        assert set(target_ids) <= {*shortlist.always, *shortlist.by_source[source_ids].reshape(-1)}
    lines = (tmp_path / "links").read_text().splitlines()
    source, target = (
        tokenizer.pieces(tokenizer.tokenize([text]).to_list()[0]) for text in sentence_pairs()[0]
    )
    links = [
        (source[int(one)], target[int(other)])
        for one, other in (link.split("-") for link in lines[0].split())
    ]
    assert len(lines) == len(sentence_pairs()) and ("An", "An") in links
    with_it = translate(capsys, arguments)
    assert [line.split("\t")[2] for line in with_it] == [line.split("\t")[2] for line in without]
    # The scores are those of fewer pieces.
    assert [line.split("\t")[1] for line in with_it] != [line.split("\t")[1] for line in without]
    assert translate(capsys, arguments, "--no-shortlist") == without


@pytest.mark.slow
def test_align_that_was_stopped_goes_on_after_the_last_pass(arguments, capsys, monkeypatch):
    main(arguments)
    expected, _ = read(arguments)
    model_dir = ModelDir(arguments[2])
    model_dir.shortlist_path.unlink()
    count_links, passes = shortlist_module.count_links, iter(range(1, 6))

    def stop(*args):
        if next(passes) == 3:
            raise KeyboardInterrupt
        return count_links(*args)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(shortlist_module, "count_links", stop)
        main(arguments)
    assert stopped.value.code == 130 and not model_dir.shortlist_path.exists()
    state = model_dir.alignment_path.read_bytes()
    capsys.readouterr()
    main(arguments)
    assert "resuming after pass 2 of 5" in capsys.readouterr().err
    for one, other in zip(read(arguments)[0], expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not model_dir.alignment_path.exists()

    # What is damaged, or of another text, is not used.
    for content, message in (
        (state[:-9], "starting again"),
        (state, "was made from another text; starting again"),
    ):
        model_dir.alignment_path.write_bytes(content)
        pathlib.Path(f"{model_dir.alignment_path}.sha256").unlink(missing_ok=True)
        pathlib.Path(arguments[4]).write_text(
            pathlib.Path(arguments[4]).read_text().replace("Anna", "Otto")
        )
        main(arguments)
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_mistakes_are_one_line(arguments, fails, text, tmp_path, capsys):
    given, empty, short = arguments[:3], text("empty", "\n" * 3), text("short", "a\n")
    message = fails(*given, "--source", empty, "--target", empty)
    assert message.endswith("none of the 3 sentence pairs has text on both sides")
    message = fails(*given, "--source", empty, "--target", short)
    assert "source and target must have the same number of lines" in message
    assert "not a model directory" in fails(
        "build-shortlist", "--model-dir", tmp_path, *arguments[3:]
    )
    assert "for --model-dir" in fails("serve", "--servable", tmp_path, "--no-shortlist")
    main(arguments)
    capsys.readouterr()
    path = ModelDir(arguments[2]).shortlist_path
    path.write_bytes(path.read_bytes()[:-1])
    assert "shortlist.npz: the file is damaged" in fails("translate", "--model-dir", arguments[2])


@pytest.mark.slow
def test_training_ends_with_a_shortlist_if_the_configuration_asks_for_it(
    arguments, tmp_path, capsys
):
    settings = ["training.steps=1", "training.validate_every=1", "training.precision=float32"]
    text = [f"--{name}={tmp_path / name}" for name in ("source", "target")]
    command = ["train", f"--model-dir={tmp_path / 'trained'}", *text]
    command += [
        f"--init-from={arguments[2]}",
        "--valid-size=5",
        "--config=fine-tune",
        "--set",
        *settings,
    ]
    # Another run in the same directory only has the shortlist to make.
    for is_asked_for in ("false", "true"):
        main([*command, f"decoding.shortlist={is_asked_for}"])
        assert (tmp_path / "trained" / "shortlist.npz").exists() == (is_asked_for == "true")
    assert "target tokens always" in capsys.readouterr().err
