"""Token ids that are kept for the next start: found if nothing that matters has changed, whole, and
the same as without a cache."""

import dataclasses
import errno
import fcntl
import gzip
import json
import logging
import os
import resource
import shutil
import subprocess
import threading

import numpy as np
import pytest

from keras_transformer.config.sections import SECTIONS
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.text import read_lines
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.training.batches import encoded_pairs, token_cache
from keras_transformer.training.batches.augmentation import Augmentation
from keras_transformer.training.batches.token_cache import (
    TokenCache,
    settings_of_training,
    settings_of_validation,
)
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.trainer import encode_training
from keras_transformer.training.text.corpus import SentencePairs, read_pairs

NOUNS = ["tree", "dog", "bridge", "house", "apple"]
SOURCES = [f"Anna sees a {noun} number {i}." for i in range(8) for noun in NOUNS]
TARGETS = [f"Anna sieht {noun} Nummer {i}." for i in range(8) for noun in NOUNS]
# One is empty, one too long.
PAIRS = SentencePairs([*SOURCES, "", "tree " * 99], [*TARGETS, "Haus", "Baum"], "invented")


@pytest.fixture(scope="module")
def tokenizers():
    lines = [*SOURCES, *TARGETS]
    tokenizer = train_tokenizer(lines, "bpe", 380, [">>de<<"], terms=True)
    return TokenizerPair(tokenizer, tokenizer)


def config_of(*overrides):
    sets = ("model.max_length=64", "training.subword_samples=3", "data.normalize=nfc")
    return load_recipe("demo", [*sets, *overrides])


class Start:
    """Starts trainings in a model directory, and counts how often they tokenize the text."""

    def __init__(self, tokenizers, model_dir):
        self.tokenizers = tokenizers
        self.model_dir = model_dir
        self.num_encoded = 0

    def encode(self, directory, config, pairs=PAIRS):
        self.num_encoded += 1
        augmentation = None
        if config.data.augment:
            spans = SpanFinder.of(config.decoding)
            augmentation = Augmentation(config.data.augment, config.training.seed, spans)
        return encode_training(config, pairs, augmentation, self.tokenizers, directory)

    def get(self, cache, *overrides, pairs=PAIRS):
        config = config_of(*overrides)
        changes = config.training.subword_dropout or config.data.augment or config.data.terms
        number = config.training.subword_samples if changes else 1
        settings = settings_of_training(config, self.tokenizers, number)
        return cache.get("train", pairs, settings, lambda path: self.encode(path, config, pairs))

    def __call__(self, *overrides, pairs=PAIRS, token_cache=True):
        """Returns the content of the token ids, and whether they had been kept."""
        before = self.num_encoded
        with TokenCache(ModelDir(self.model_dir), token_cache) as cache:
            content = content_of(self.get(cache, *overrides, pairs=pairs))
            cache.commit()
        return content, self.num_encoded == before

    def is_kept(self, *overrides, **options):
        return self(*overrides, **options)[1]

    def entries(self):
        return sorted((self.model_dir / "tokens").iterdir())


@pytest.fixture
def start(tokenizers, tmp_path):
    return Start(tokenizers, tmp_path / "model")


def content_of(encoded):
    """All that training reads: the values, and the bytes of the files."""
    values = dataclasses.asdict(encoded)
    directory = values.pop("directory")
    values["length_counts"] = encoded.length_counts.tobytes()
    blocks = {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name.endswith((".ids", ".lengths", ".links"))
    }
    return values, blocks


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("pairs_per_block", [2**18, 7])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("training.guided_alignment=0.1",),
        ("training.subword_dropout=0.3", "data.augment.upper_case=0.5"),
        ("data.terms=0.5", "decoding.placeholders=true"),
    ],
)
def test_a_later_start_gets_the_same_bytes_without_tokenizing(
    overrides, pairs_per_block, start, monkeypatch
):
    monkeypatch.setattr(encoded_pairs, "_PAIRS_PER_BLOCK", pairs_per_block)
    first, was_kept = start(*overrides)
    assert not was_kept
    again, was_kept = start(*overrides)
    assert was_kept and again == first
    without, was_kept = start(*overrides, token_cache=False)
    assert not was_kept and without == first
    values, _ = first
    assert values["num_empty"] and values["num_too_long"]
    assert values["has_links"] == ("training.guided_alignment=0.1" in overrides)


# With all random changes.
RANDOM = ("training.subword_dropout=0.3", "data.augment.upper_case=0.5", "data.terms=0.5")
SPANS = ("decoding.placeholders=true", "decoding.keep=[Anna]")
INFLUENCE = {
    "model.max_length": ((), "65"),
    "decoding.placeholders": ((), "true"),
    "decoding.keep": (SPANS, "[tree]"),
    "decoding.placeholder_patterns": (SPANS, "[dog]"),
    "training.guided_alignment": ((), "0.1"),
    "training.subword_dropout": (RANDOM, "0.2"),
    "training.subword_samples": (RANDOM, "2"),
    "training.seed": (RANDOM, "7"),
    "data.terms": (RANDOM, "0.4"),
    "data.augment": (RANDOM, "{upper_case: 0.4}"),
}


def test_token_settings_leave_out_only_options_that_exist_and_have_no_influence():
    fields = {
        f"{section}.{field.name}"
        for section, of_section in SECTIONS.items()
        for field in dataclasses.fields(of_section)
    }
    assert fields > token_cache._WITHOUT_INFLUENCE
    assert not token_cache._WITHOUT_INFLUENCE & INFLUENCE.keys()


def test_token_settings_with_a_new_option_change_with_its_value(tokenizers, monkeypatch):
    monkeypatch.setattr(
        token_cache, "_WITHOUT_INFLUENCE", token_cache._WITHOUT_INFLUENCE - {"training.decay"}
    )
    settings = [
        settings_of_training(config_of(f"training.decay={decay}"), tokenizers, 1)
        for decay in ("cosine", "constant")
    ]
    assert settings[0] != settings[1]


@pytest.mark.parametrize("name", INFLUENCE)
def test_an_option_that_matters_is_in_the_settings(name, tokenizers):
    overrides, value = INFLUENCE[name]
    settings, validation = [], []
    for more in ((), (f"{name}={value}",)):
        config = config_of(*overrides, *more)
        settings.append(settings_of_training(config, tokenizers, config.training.subword_samples))
        validation.append(settings_of_validation(config, tokenizers))
    assert settings[0] != settings[1]
    is_random = name.startswith(("training.", "data."))
    assert (validation[0] == validation[1]) == is_random


@pytest.mark.parametrize(
    "override", ["training.steps=7", "training.seed=7", "training.subword_samples=2"]
)
def test_without_random_changes_their_options_do_not_matter(override, start):
    start()
    assert start.is_kept(override)


def test_other_vocabularies_normal_forms_and_versions_matter(tokenizers, monkeypatch):
    config = config_of()
    settings = [settings_of_validation(config, tokenizers)]
    for content, normalization in (
        (tokenizers.source.file_content, "nfkc"),
        (train_tokenizer(SOURCES, "bpe", 350).file_content, "none"),
    ):
        tokenizer = type(tokenizers.source)(content, normalization)
        settings.append(settings_of_validation(config, TokenizerPair(tokenizer, tokenizer)))
    monkeypatch.setattr(token_cache.np, "__version__", "1.0")
    settings.append(settings_of_validation(config, tokenizers))
    texts = [json.dumps(each) for each in settings]
    assert len(set(texts)) == len(texts) == 4


def changed(**changes):
    return dataclasses.replace(PAIRS, **changes)


# The same lines on both sides, but other pairs, tags or weights.
NUMBER = len(PAIRS)
OTHER_TEXTS = {
    "another line": changed(source=[*PAIRS.source[:-1], "a tree"]),
    "another order": changed(source=PAIRS.source[::-1], target=PAIRS.target[::-1]),
    "another translation": changed(target=[*PAIRS.target[1:], PAIRS.target[0]]),
    "fewer lines": changed(source=PAIRS.source[:-1], target=PAIRS.target[:-1]),
    "swapped": changed(source=PAIRS.target, target=PAIRS.source),
    "tags": changed(tags=((1, ">>de<<"), (NUMBER - 1, ""))),
    "tag in the text": changed(source=[f">>de<<{PAIRS.source[0]}", *PAIRS.source[1:]]),
    "weights": changed(weights=((NUMBER, 2.0),)),
    "half": changed(weights=((NUMBER, 0.5),)),
}


def test_another_text_is_tokenized(start):
    texts = [PAIRS, *OTHER_TEXTS.values()]
    shared = start.model_dir / "shared"
    assert not any(start.is_kept(pairs=text, token_cache=shared) for text in texts)
    assert all(start.is_kept(pairs=text, token_cache=shared) for text in texts)


@pytest.mark.parametrize(
    "random",
    [
        ("training.subword_dropout=0.3",),
        # Terms are found in all pairs.
        ("data.terms=0.5", "training.subword_samples=1"),
    ],
)
def test_a_pair_that_the_first_epoch_leaves_out_matters(random, start):
    half = changed(weights=((NUMBER, 0.5),))
    (first, _), _ = start(*random, pairs=half)
    for place in range(NUMBER - 2):
        source = [*half.source[:place], "a dog", *half.source[place + 1 :]]
        other = dataclasses.replace(half, source=source)
        if token_cache._fingerprint(other) == first["fingerprint"]:
            break
    else:
        pytest.fail("the first epoch uses all pairs")
    assert not start.is_kept(*random, pairs=other)


def test_names_and_files_of_a_text_do_not_matter(start, tmp_path):
    start()
    assert start.is_kept(pairs=changed(name="other"))
    for side in ("source", "target"):
        lines = getattr(PAIRS, side)
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
    assert start.is_kept(pairs=read_pairs(tmp_path / "source", tmp_path / "target"))


def test_a_pipe_is_read_once_and_its_text_is_found_again(start, tmp_path):
    def piped():
        reading, writing = os.pipe()
        os.write(writing, "".join(f"{line}\n" for line in PAIRS.source).encode())
        os.close(writing)
        source = read_lines(f"/dev/fd/{reading}")
        os.close(reading)
        return changed(source=source)

    first, was_kept = start(pairs=piped())
    assert not was_kept
    assert start(pairs=piped()) == (first, True)


class Unsteady(list):
    """Lines that are different each time they are read."""

    number = 0

    def __iter__(self):
        self.number += 1
        return iter([f"{line} {self.number}" for line in super().__iter__()])


def test_a_text_that_changes_while_it_is_read_is_not_kept(start):
    source = Unsteady(PAIRS.source)
    for _ in range(2):
        assert not start.is_kept(pairs=changed(source=source))
    assert not (start.model_dir / "tokens").exists()


def damages(entry):
    """Damages each file of an entry in several ways, one after another."""
    for path in sorted(entry.iterdir()):
        flip(path)
        yield f"flipped {path.name}"
        os.truncate(path, path.stat().st_size // 2)
        yield f"truncated {path.name}"
        path.unlink()
        yield f"removed {path.name}"
    (entry / "SHA256SUMS").write_text("")
    yield "no checksums"
    (entry / "SHA256SUMS").write_text(f"{'0' * 64}  ../../outside\n")
    yield "outside"
    shutil.rmtree(entry)
    entry.mkdir()
    yield "nothing"
    shutil.rmtree(entry)
    entry.write_text("a file")
    yield "a file"
    shutil.rmtree(entry)
    entry.symlink_to(entry.parent)
    yield "a link"


def test_a_damaged_entry_is_made_anew(start, caplog):
    first, _ = start()
    (entry,) = start.entries()
    for damage in damages(entry):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "keras_transformer"):
            again, was_kept = start()
        assert not was_kept and again == first, damage
        (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert line.startswith(f"{entry}: these tokens cannot be used ("), damage
        assert start.entries() == [entry], damage
        assert start() == (first, True), damage


def test_a_damaged_entry_that_is_in_use_stays_and_is_not_used(start):
    first, _ = start()
    (entry,) = start.entries()
    with TokenCache(ModelDir(start.model_dir), True) as other:
        start.get(other)
        flip(entry / "0.source.ids")
        damaged = (entry / "0.source.ids").read_bytes()
        assert start() == (first, False)
        assert (entry / "0.source.ids").read_bytes() == damaged
    assert start() == (first, False)
    assert start() == (first, True)


def test_an_entry_that_cannot_be_read_for_now_stays(start, monkeypatch):
    first, _ = start()
    (entry,) = start.entries()

    def fail(path, max_bytes):
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(token_cache, "read_limited", fail)
        assert start() == (first, False)
    assert start.entries() == [entry]
    assert start() == (first, True)


@pytest.mark.parametrize(
    ("options", "differences"),
    [
        (dict(), None),
        (dict(pairs=dataclasses.replace(PAIRS, source=PAIRS.source[::-1])), "text"),
        (dict(overrides=["model.max_length=65"]), "model.max_length"),
        (
            dict(overrides=["training.subword_dropout=0.3"]),
            "epochs, training.seed, training.subword_dropout, training.subword_samples",
        ),
    ],
)
def test_the_log_says_why_a_text_is_tokenized_again(options, differences, start, caplog):
    options = dict(options)
    overrides = options.pop("overrides", ())
    with caplog.at_level(logging.INFO, "keras_transformer"):
        start()
        assert caplog.messages == []
        start(*overrides, **options)
    (message,) = caplog.messages
    if differences is None:
        assert message.startswith("invented: tokenized before, in ")
    else:
        assert message == f"invented: no kept tokens have the same {differences}"


def test_an_entry_of_other_settings_is_not_used(start):
    first, _ = start()
    (entry,) = start.entries()
    start("model.max_length=65")
    (other,) = start.entries()
    other.rename(entry)
    assert start() == (first, False)


def test_of_two_that_tokenize_at_once_both_are_right_and_one_is_kept(start, tokenizers):
    other = Start(tokenizers, start.model_dir)
    tokenizing = threading.Barrier(2)
    encode = Start.encode
    results = {}

    def encode_together(self, *arguments):
        # Both have looked for an entry, and neither has found one.
        tokenizing.wait(60)
        return encode(self, *arguments)

    def run(who):
        who.encode = encode_together.__get__(who)
        results[who] = who()

    threads = [threading.Thread(target=run, args=[who]) for who in (start, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [was_kept for _, was_kept in results.values()] == [False, False]
    assert results[start][0] == results[other][0]
    assert len(start.entries()) == 1
    del start.encode
    assert start() == (results[start][0], True)


def test_the_slower_of_two_uses_the_entry_of_the_faster(start, tokenizers):
    with TokenCache(ModelDir(start.model_dir), True) as cache:
        encode = start.encode
        faster = Start(tokenizers, start.model_dir)
        start.encode = lambda *arguments: faster() and encode(*arguments)
        encoded = start.get(cache)
        assert encoded.directory in faster.entries()
        assert [path.name for path in cache.temporary.iterdir()] == []
    assert faster.num_encoded == start.num_encoded == 1


# Before the checksums are written, and before the directory is renamed.
@pytest.mark.parametrize("name", ["_write_entry", "rename"])
def test_a_killed_process_leaves_only_what_the_next_start_removes(
    name, start, tokenizers, tmp_path, monkeypatch
):
    function = getattr(token_cache, name)

    def as_if_killed(*arguments):
        # What is on the disk at this instant, and locked by nobody.
        shutil.copytree(start.model_dir, tmp_path / "killed")
        return function(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(token_cache, name, as_if_killed)
        expected, _ = start()
    after = Start(tokenizers, tmp_path / "killed")
    (left,) = after.entries()
    assert left.name.startswith(".writing-")
    assert after() == (expected, False)
    assert [path.name for path in after.entries()] == [path.name for path in start.entries()]
    assert after() == (expected, True)


def test_entries_of_this_directory_that_are_not_used_are_removed(start):
    start()
    mine = start.model_dir / "tokens" / "notes"
    mine.mkdir()
    (old,) = [path for path in start.entries() if path != mine]
    start("model.max_length=65")
    assert not old.exists() and len(start.entries()) == 2 and mine.exists()


def test_an_entry_that_another_training_uses_is_not_removed(start):
    start()
    (entry,) = start.entries()
    with TokenCache(ModelDir(start.model_dir), True) as other:
        start.get(other)
        start("model.max_length=65")
        assert entry in start.entries()
    start("model.max_length=65")
    assert entry not in start.entries()


@pytest.mark.parametrize("operation", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_an_entry_that_is_replaced_before_it_is_locked_stays(
    operation, start, tokenizers, monkeypatch
):
    first, _ = start()
    (entry,) = start.entries()
    flip(entry / "0.source.ids")
    damaged = os.open(entry, os.O_RDONLY)
    flock = fcntl.flock
    with TokenCache(ModelDir(start.model_dir), True) as cache:

        def replace_and_lock(descriptor, asked):
            if asked & operation and os.path.sameopenfile(descriptor, damaged):
                monkeypatch.setattr(fcntl, "flock", flock)
                # This start removes the damaged entry, and uses the new one.
                Start(tokenizers, start.model_dir).get(cache)
                (entry / "of another start").touch()
            flock(descriptor, asked)

        monkeypatch.setattr(fcntl, "flock", replace_and_lock)
        assert start() == (first, False)
        assert (entry / "of another start").exists()
    os.close(damaged)
    assert start() == (first, True)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_an_entry_stays_if_threads_or_memory_are_used_up(error, start, monkeypatch):
    first, _ = start()
    (entry,) = start.entries()
    with monkeypatch.context() as patch:
        patch.setattr(token_cache, "read_length_counts", lambda *arguments: raise_(error))
        (entry / "of this start").touch()
        assert start() == (first, False)
    assert (entry / "of this start").exists()
    assert start() == (first, True)


def test_an_error_of_a_decompressor_keeps_its_message(start, monkeypatch):
    monkeypatch.setattr(start, "encode", lambda *arguments: raise_(gzip.BadGzipFile("no gzip")))
    with pytest.raises(gzip.BadGzipFile, match="^no gzip$"):
        start()


def raise_(error):
    raise error


def test_a_directory_that_is_shared_keeps_all_entries_and_dates_their_last_use(start, tmp_path):
    shared = tmp_path / "shared"
    start(token_cache=shared)
    (entry,) = shared.iterdir()
    os.utime(entry, (0, 0))
    start("model.max_length=65", token_cache=shared)
    assert entry.stat().st_mtime == 0
    assert start.is_kept(token_cache=str(shared))
    assert entry.stat().st_mtime > 0
    assert len(list(shared.iterdir())) == 2
    assert not start.model_dir.exists()


def test_nothing_is_kept_if_it_is_not_wanted(start):
    start(token_cache=False)
    assert list(start.model_dir.iterdir()) == []


@pytest.mark.parametrize("error, is_kept", [(ConfigError, False), (KeyboardInterrupt, True)])
def test_a_training_that_is_refused_leaves_nothing_new(error, is_kept, start):
    start()
    before = start.entries()
    with pytest.raises(error), TokenCache(ModelDir(start.model_dir), True) as cache:
        start.get(cache, "model.max_length=65")
        raise error("another text")
    assert (start.entries() != before) == is_kept
    assert {*before} <= {*start.entries()}


def test_a_full_disk_is_an_error_that_names_the_entry(start, limit_file_sizes):
    with pytest.raises(OSError, match="File too large") as error:
        limit_file_sizes(500)
        start()
    limit_file_sizes(resource.RLIM_INFINITY)
    assert error.value.filename.startswith(str(start.model_dir / "tokens"))
    assert ".writing-" not in error.value.filename
    assert not (start.model_dir / "tokens").exists()


def test_a_disk_that_is_full_when_files_are_synced_is_an_error_that_names_the_entry(
    start, monkeypatch
):
    def fail(path, target):
        # The error of `os.fsync` names no file.
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(token_cache, "rename", fail)
    with pytest.raises(OSError, match="No space left on device") as error:
        start()
    assert error.value.filename.startswith(str(start.model_dir / "tokens"))


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/tokens"])
def test_a_place_that_cannot_be_written_is_an_error_that_names_the_option(path, start, tmp_path):
    (tmp_path / "file").write_text("a file")
    message = "^--token-cache must be a directory that can be written to; received '"
    with pytest.raises(ConfigError, match=message):
        start(token_cache=tmp_path / path)


def test_sha256sum_can_check_an_entry(start):
    start("training.guided_alignment=0.1")
    (entry,) = start.entries()
    command = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=entry, check=True)
    flip(entry / "0.target.links")
    assert subprocess.run(command, cwd=entry, capture_output=True).returncode == 1


def test_the_files_are_what_the_page_says(start):
    (values, blocks), _ = start()
    assert values["dtype"] == "uint16"
    num_tokens = np.frombuffer(blocks["0.source.lengths"], "int32").sum()
    assert len(blocks["0.source.ids"]) == 2 * num_tokens
