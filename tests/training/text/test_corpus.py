"""Reading sentence pairs from text files and from tensorflow-datasets."""

import gzip
import json
import os
import threading

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from urllib3.util.retry import Retry

from keras_transformer.commands.main import main
from keras_transformer.text import read_lines
from keras_transformer.text.tfds import tfds_corpus
from keras_transformer.training.text.corpus import read_pairs, read_text


def contents(pairs):
    return list(pairs.source), list(pairs.target), pairs.name


def load_tfds(name, split, data_dir=None):
    return read_text([tfds_corpus(name, split, data_dir)])[0]


def message_of(function, *args, **kwargs):
    """Returns the message of the ValueError that a call raises, which must be a single line."""
    with pytest.raises(ValueError) as raised:
        function(*args, **kwargs)
    message = str(raised.value)
    assert message and "\n" not in message
    return message


def test_only_a_line_feed_ends_a_line(text):
    inside = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg\rh"
    path = text("text", f"{inside}\nzwei\r\n\n  vier \n".encode())
    assert list(read_lines(path)) == [inside, "zwei", "", "  vier "]
    assert list(read_lines(text("text", b"one\ntwo"))) == ["one", "two"]
    assert list(read_lines(text("text", b"one\ntwo\n\n"))) == ["one", "two", ""]


def test_the_lines_of_a_file_are_read_anew_each_time(text):
    path = text("text", b"one\ntwo\n")
    lines = read_lines(path)
    assert list(lines) == list(lines) == ["one", "two"]
    # Nothing of them was held.
    text("text", b"three\nfour\n")
    assert list(lines) == ["three", "four"]


def test_a_text_that_becomes_shorter_between_two_passes_is_named(text):
    pairs = read_pairs(text("text.en", b"a\nb\n"), text("text.de", b"c\nd\n"))
    text("text.de", b"c\n")
    message = message_of(list, zip(pairs.source, pairs.target))
    assert message == f"{pairs.name}: the text has become shorter since it was first read"


def test_a_pipe_is_read_once_and_held(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_bytes, args=(b"one\ntwo\n",))
    writing.start()
    lines = read_lines(pipe)
    writing.join()
    assert list(lines) == list(lines) == ["one", "two"]


def test_a_byte_order_mark_is_dropped_at_the_start_alone(text):
    path = text("text", "\ufeffone\n\ufefftwo\n".encode())
    assert list(read_lines(path)) == ["one", "\ufefftwo"]
    assert list(read_lines(text("mark", "\ufeff".encode()))) == []
    # The mark arrives apart from the text.
    assert list(
        read_lines(text("mark.gz", gzip.compress("\ufeff".encode()) + gzip.compress(b"one\n")))
    ) == ["one"]


def test_invalid_utf8_is_an_error_with_file_line_and_byte(text):
    bad = b"\xef\xbb\xbfone\ntwo\nab\xffc\nfour\n"
    for path in (text("bad", bad), text("bad.gz", gzip.compress(bad))):
        message = message_of(list, read_lines(path))
        assert message.startswith(f"{path}: line 3 is not valid UTF-8")
        assert message.endswith("0xff at byte 3 of the line")
    assert "line 2 " in message_of(list, read_lines(text("surrogate", b"one\n\xed\xa0\x80\n")))


def test_a_missing_file_or_a_directory_is_named(tmp_path):
    for path, problem in (("absent.gz", "No such file or directory"), (".", "Is a directory")):
        assert message_of(read_lines, tmp_path / path) == f"{tmp_path / path}: {problem}"


@pytest.mark.parametrize("empty", [0, 1])
def test_an_empty_file_is_an_error_that_names_it(text, empty):
    names = ["text.en", "text.de"]
    paths = [text(name, b"a\n") for name in names]
    text(names[empty], b"")
    assert message_of(read_pairs, *paths) == f"{paths[empty]}: the file is empty"
    text(names[1 - empty], b"")
    assert message_of(read_pairs, *paths) == f"{paths[0]}: the text is empty"


SENTENCES = {
    "train": [("ein roter Ball", "a red ball"), ("zwei\u2028Bären", "two bears"), ("", "none")],
    "test": [("Grüße 🐻", "greetings 🐻")],
}


class InventedTranslate(tfds.core.GeneratorBasedBuilder):
    """A tensorflow-datasets dataset with the sentences of this file."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name="de_en", description="German to English"),
        tfds.core.BuilderConfig(name="en_de", description="English to German"),
    ]

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.Translation(languages=("de", "en")),
            supervised_keys=tuple(self.builder_config.name.split("_")),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in SENTENCES}

    def _generate_examples(self, split):
        for number, (german, english) in enumerate(SENTENCES[split]):
            yield number, {"de": german, "en": english}


class InventedLabels(tfds.core.GeneratorBasedBuilder):
    """A dataset of labeled sentences, without translations."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict({"text": tfds.features.Text(), "label": tf.int64}),
            supervised_keys=("text", "label"),
        )

    def _split_generators(self, dl_manager):
        raise AssertionError("a dataset that is of no use must not be downloaded")

    def _generate_examples(self):
        yield


class InventedRemote(InventedTranslate):
    """A dataset that must be downloaded, from a port without a listener."""

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(dl_manager.download("http://127.0.0.1:9/text"))}


@pytest.mark.slow
def test_a_dataset_gives_its_pairs_in_the_direction_its_info_names(tmp_path, capsys):
    pairs = load_tfds("invented_translate/de_en", "train", data_dir=tmp_path)
    # tensorflow-datasets shuffles when it writes to disk, the same way each time.
    assert sorted(zip(pairs.source, pairs.target)) == sorted(SENTENCES["train"])
    assert contents(pairs) == contents(
        load_tfds("invented_translate/de_en", "train", data_dir=tmp_path)
    )
    assert pairs.name == "invented_translate/de_en, train"

    swapped = load_tfds("invented_translate/en_de", "test", data_dir=tmp_path)
    assert contents(swapped) == (["greetings 🐻"], ["Grüße 🐻"], "invented_translate/en_de, test")
    assert capsys.readouterr().out == ""


def test_a_prepared_dataset_is_read_and_not_prepared_again(tmp_path, monkeypatch):
    prepared = load_tfds("invented_translate/de_en", "train[:2]", data_dir=tmp_path)
    assert len(prepared) == 2

    def no_network(*args):
        raise OSError("there is no network")

    monkeypatch.setattr(InventedTranslate, "_split_generators", no_network)
    assert contents(
        load_tfds("invented_translate/de_en", "train[:2]", data_dir=tmp_path)
    ) == contents(prepared)
    # The same failure is met where the dataset is not on disk.
    message = message_of(load_tfds, "invented_translate/en_de", "train", data_dir=tmp_path)
    assert "could not be downloaded: there is no network" in message


def test_a_known_dataset_is_loaded_by_its_real_name():
    def chosen_sentences(self, split, **_):
        pairs = {
            "train": [("um cão", "a dog"), ("um gato", "a cat")],
            "validation": [("sim", "yes")],
        }
        portuguese, english = zip(*pairs[str(split)])
        return tf.data.Dataset.from_tensor_slices({"en": list(english), "pt": list(portuguese)})

    with tfds.testing.mock_data(as_dataset_fn=chosen_sentences):
        train = load_tfds("ted_hrlr_translate/pt_to_en", "train")
        validation = load_tfds("ted_hrlr_translate/pt_to_en", "validation")
    assert contents(train)[:2] == (["um cão", "um gato"], ["a dog", "a cat"])
    assert contents(validation)[:2] == (["sim"], ["yes"])


def test_pairs_of_a_dataset_may_be_held_out(capsys):
    def numbers(self, split, **_):
        assert str(split) == "train"
        return tf.data.Dataset.from_tensor_slices(
            {"en": list("0123456789"), "pt": list("abcdefghij")}
        )

    with tfds.testing.mock_data(as_dataset_fn=numbers):
        main(["check-data", "--tfds", "ted_hrlr_translate/pt_to_en", "--valid-size", "3", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (
        list(report) == ["training"]
        and report["training"]["text"] == "ted_hrlr_translate/pt_to_en, train"
    )
    assert (report["training"]["pairs"], report["training"]["held_out"]) == (10, 3)


def test_a_failed_download_ends_in_one_line_after_four_retries(tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(Retry, "sleep", lambda self, response=None: pauses.append(self))
    message = message_of(load_tfds, "invented_remote/de_en", "train", data_dir=tmp_path)
    assert message.startswith("invented_remote/de_en is not on disk in ")
    assert str(tmp_path) in message and "Connection refused" in message
    assert len(pauses) == 4


def test_an_unknown_dataset_is_an_error_with_the_nearest_names(tmp_path):
    message = message_of(load_tfds, "ted_hrl_translate/pt_to_en", "train", data_dir=tmp_path)
    assert "no dataset 'ted_hrl_translate'" in message and "ted_hrlr_translate" in message
    message_of(load_tfds, "", "train", data_dir=tmp_path)
    message_of(load_tfds, "two words/x", "train", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "split", "parts"),
    [
        ("invented_translate/de_fr", "train", ["'invented_translate/de_fr'", "are de_en, en_de"]),
        ("invented_translate/de_en:7.0.0", "train", ["7.0.0", "1.0.0"]),
        *(
            ("invented_translate/de_en", split, [f"no split {split!r}, it has test, train"])
            for split in ("dev", "")
        ),
        ("invented_translate/de_en", "train[:x]", ["no split 'train[:x]', it has test, train"]),
        ("invented_translate/de_en", "train[:0]", ["'train[:0]'"]),
    ],
)
def test_an_unknown_configuration_version_or_split_is_named_with_the_known_ones(
    tmp_path, name, split, parts
):
    message = message_of(load_tfds, name, split, data_dir=tmp_path)
    assert all(part in message for part in parts)


def test_a_dataset_without_text_pairs_is_refused_before_it_is_downloaded(tmp_path):
    message = message_of(load_tfds, "invented_labels", "train", data_dir=tmp_path)
    assert message == (
        "invented_labels is not a dataset of text pairs: its supervised pair is ('text', "
        "'label'), its texts are text"
    )
