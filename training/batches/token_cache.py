"""Keeps the token ids of texts on disk, so that the next start does not tokenize them again.

An entry is a directory with the files of `EncodedPairs` and two more:

    tokens.json   the settings that the token ids depend on, and the other values of `EncodedPairs`
    SHA256SUMS    the checksums of all other files, in the format of the command `sha256sum`

The name of an entry is a hash of its settings, which include a hash of the text. Entries are made
in a temporary directory and renamed, so they are never incomplete. Training runs that use an entry
share a lock on its directory, so that no other run removes it. No run waits for a lock: if there is
no entry yet, each run makes one, and all use the first that is complete.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import logging
import operator
import os
import pathlib
import platform
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import numpy as np
import regex
import sentencepiece
import tensorflow as tf
import tensorflow_text

import keras_transformer
from keras_transformer.checks import shown
from keras_transformer.config import Config
from keras_transformer.errors import ConfigError, Error
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import (
    UNREADABLE,
    naming_errors,
    read_limited,
    rename,
    temporary_beside,
)
from keras_transformer.runtime.device import num_cores
from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.tokenizers import TokenizerPair

from ..text.corpus import (
    SentencePairs,
    TextFingerprint,
    TextHash,
    fingerprint_of,
    in_chunks,
    pairs_of_epoch,
    pairs_per_epoch,
)
from .encoded_pairs import EncodedPairs, read_length_counts

_log = logging.getLogger(__name__)

# Increase this number when the same text and the same settings result in other token ids or in
# other files.
_FORMAT_VERSION = 1
_VALUES, _CHECKSUMS = "tokens.json", "SHA256SUMS"
_NAME_OF_ENTRY = re.compile("[0-9a-f]{32}")
_NAME_OF_FILE = re.compile(rf"[0-9]+\.(source|target)\.(ids|lengths|links)|{re.escape(_VALUES)}")
# The files of an entry with 100,000 blocks have 50 MB of checksums.
_MAX_BYTES = 2**28
# Errors of renaming a directory to a name that exists.
_EXISTS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


# Settings that do not change the token ids. The text is hashed after the filters, weights and tags
# have done their work, and the tokenizers are hashed after they have been learned.
_WITHOUT_INFLUENCE = frozenset(
    f"{section}.{name}"
    for section, names in {
        "model": "source_vocab_size target_vocab_size num_layers num_encoder_layers "
        "num_decoder_layers d_model d_ff num_heads key_dim value_dim dropout attention_dropout "
        "activation_dropout activation norm_first positions tie_embeddings epsilon attention_bias "
        "logits_bias sliding_window feed_forward_bias normalization gated num_key_value_heads "
        "query_key_norm",
        "tokenizer": "kind vocab_size shared",
        "training": "steps tokens_per_batch num_buckets warmup_steps peak_learning_rate decay "
        "label_smoothing consistency clip_norm accumulate_steps freeze precision validate_every "
        "validate_by bleu_tokenizer ema patience keep_checkpoints average_last average_best",
        "decoding": "beam_size length_penalty max_extra_tokens forbidden_tokens "
        "no_repeat_ngram_size shortlist repetition_penalty min_length tag terms",
        "data": "weights tags valid_tags scores min_score min_characters max_characters "
        "max_length_ratio source_script target_script min_script_share source_language "
        "target_language remove_copies remove_duplicates normalize",
    }.items()
    for name in names.split()
)
# Settings that change only the training text.
_ONLY_FOR_TRAINING = frozenset(
    {
        "training.guided_alignment",
        "training.subword_dropout",
        "training.subword_samples",
        "training.seed",
        "data.terms",
        "data.augment",
    }
)


class TokenCache:
    """Token ids of texts, which later trainings find again. A context manager.

    Args:
        model_dir: The model directory of the training.
        token_cache: Where to keep the token ids: True for the model directory, or the path of
            another directory, which several trainings may share. With False, they are removed when
            the context ends.

    Attributes:
        temporary: A directory for temporary files, which is removed when the context ends.

    Raises:
        ConfigError: On entry, if `token_cache` is a path at which no directory can be written.
    """

    def __init__(self, model_dir: ModelDir, token_cache: str | os.PathLike[str] | bool) -> None:
        self._is_in_model_dir = token_cache is True
        self._path: pathlib.Path | None
        if isinstance(token_cache, bool):
            self._path = model_dir.tokens_path if token_cache else None
        else:
            self._path = pathlib.Path(token_cache)
        # Do not use the system's temporary directory, which may be in memory. Directories can be
        # renamed only within a file system.
        self._parent = self._path or model_dir.path
        self._stack = contextlib.ExitStack()
        self._locks = contextlib.ExitStack()
        self._needed: set[str] = set()
        self._new: list[pathlib.Path] = []
        self.temporary: pathlib.Path

    def __enter__(self) -> Self:
        try:
            self.temporary = self._stack.enter_context(
                temporary_beside(self._parent / "token-ids", is_directory=True)
            )
        except OSError as error:
            if self._path is None or self._is_in_model_dir:
                raise
            raise ConfigError(
                "--token-cache must be a directory that can be written to; received "
                f"{shown(str(self._path))} ({error.filename}: {error.strerror})"
            ) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._locks.close()
        # A training run that is refused, for example because its text has changed, leaves the model
        # directory as it was.
        if self._is_in_model_dir and kind is not None and issubclass(kind, Error):
            for entry in self._new:
                self._remove(entry)
        self._stack.close()
        if self._is_in_model_dir:
            # If nothing is kept, the directory is empty and can be removed.
            with contextlib.suppress(OSError):
                self._parent.rmdir()

    def get(
        self,
        name: str,
        pairs: SentencePairs,
        settings: dict[str, Any],
        encode: Callable[[pathlib.Path], EncodedPairs],
    ) -> EncodedPairs:
        """Returns the token ids of a text from an earlier training, or makes them.

        Args:
            name: The name of the text in the temporary directory.
            pairs: The text.
            settings: The settings that the token ids depend on, without the text.
            encode: Function that tokenizes the text and writes the token ids to a new directory.

        Raises:
            ConfigError, InvalidFileError: As in `encode`, or when the text is read.
            OSError: The token ids cannot be written.
        """
        if self._path is None:
            return encode(self.temporary / name)
        text = _fingerprint(pairs)
        settings = _in_json(settings | _settings_of_text(pairs, text, settings))
        entry = self._path / hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]
        found = self._open(entry, settings)
        if found is not None:
            _log.info(f"{pairs.name}: tokenized before, in {entry}")
            return found
        self._log_changes(pairs.name, settings)
        new = self.temporary / name
        with self._naming_errors(entry):
            encoded = encode(new)
            # A text that is different each time it is read has no entry.
            if encoded.fingerprint != text:
                return encoded
            _write_entry(encoded, settings)
            return self._publish(encoded, entry, settings)

    def commit(self) -> None:
        """Keeps the entries of this training, and removes all others from the model directory.

        Entries in another directory, and entries that another training uses, are kept. Without a
        commit, new entries are removed if the context ends with an `Error`.
        """
        self._new.clear()
        if self._is_in_model_dir:
            for entry in self._parent.iterdir():
                if _NAME_OF_ENTRY.fullmatch(entry.name) and entry.name not in self._needed:
                    self._remove(entry)

    def _publish(
        self, encoded: EncodedPairs, entry: pathlib.Path, settings: dict[str, Any]
    ) -> EncodedPairs:
        """Renames a new directory to an entry. The token ids are valid in any case."""
        self._hold(encoded.directory)
        if _rename_if_free(encoded.directory, entry):
            self._needed.add(entry.name)
            self._new.append(entry)
            return dataclasses.replace(encoded, directory=entry)
        # Another training was faster.
        found = self._open(entry, settings)
        if found is not None:
            shutil.rmtree(encoded.directory, ignore_errors=True)
            return found
        # An entry that cannot be used is in the way. Use the new token ids in the temporary
        # directory.
        return encoded

    def _open(self, entry: pathlib.Path, settings: dict[str, Any]) -> EncodedPairs | None:
        """Returns the token ids of an entry, or None if there is no entry or it cannot be used.

        The entry is in use until the context ends. A damaged entry is removed.
        """
        if not os.path.lexists(entry):
            return None
        release = None
        try:
            release = self._hold(entry)
            encoded = _read_entry(entry, settings)
        except UNREADABLE as error:
            if release is not None:
                release()
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            _log.warning(f"{entry}: these tokens cannot be used ({reason})")
            if _shows_damage(error):
                self._remove(entry)
            else:
                # A later training may be able to use it.
                self._needed.add(entry.name)
            return None
        # Show which entries are still needed. The directory may belong to another user.
        with contextlib.suppress(OSError):
            os.utime(entry)
        self._needed.add(entry.name)
        return encoded

    def _log_changes(self, name: str, settings: dict[str, Any]) -> None:
        """Logs what has changed since the most similar entry was made, if there is one."""
        changes = []
        for values in self._parent.glob(f"*/{_VALUES}"):
            # The entries of this training belong to other texts.
            if values.parent.name not in self._needed:
                with contextlib.suppress(*UNREADABLE):
                    others = json.loads(read_limited(values, _MAX_BYTES))["settings"]
                    names = sorted(settings.keys() | others.keys())
                    changes.append([key for key in names if settings.get(key) != others.get(key)])
        if changes:
            fewest = min(changes, key=lambda names: (len(names), names))
            _log.info(f"{name}: no kept tokens have the same {', '.join(fewest)}")

    def _hold(self, directory: pathlib.Path) -> Callable[[], None]:
        """Shares the lock of a directory until the context ends, or the result is called."""
        stack = self._locks.enter_context(contextlib.ExitStack())
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            stack.close()
            # Some file systems have no locks.
            if isinstance(error, BlockingIOError):
                raise
        # Another training may have removed the directory before it was locked.
        if not _is_at(descriptor, directory):
            stack.close()
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        return stack.close

    def _remove(self, entry: pathlib.Path) -> None:
        """Removes an entry, unless another training uses it or this user may not."""
        removed = self.temporary / f"removed-{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):
            descriptor = os.open(entry, os.O_RDONLY | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another training may have replaced the entry before it was locked.
                if _is_at(descriptor, entry):
                    os.rename(entry, removed)
            finally:
                os.close(descriptor)
            shutil.rmtree(removed, ignore_errors=True)

    @contextlib.contextmanager
    def _naming_errors(self, entry: pathlib.Path) -> Iterator[None]:
        """Makes an OSError name the entry instead of a file in the temporary directory."""
        try:
            yield
        except OSError as error:
            # `fsync` names no file.
            is_ours = str(error.filename or self.temporary).startswith(str(self.temporary))
            # Errors of a decompressor have no number.
            if error.errno is None or not is_ours:
                raise
            raise OSError(error.errno, error.strerror, str(entry)) from None


def settings_of_training(
    config: Config, tokenizers: TokenizerPair, num_epochs: int
) -> dict[str, Any]:
    """Returns all settings that the token ids of the training text depend on.

    These are all settings but `_WITHOUT_INFLUENCE`, so a new option is safe: a change of its value
    tokenizes the text again. Settings of random changes are left out if none is turned on, so that
    trainings that differ only in their seed share their token ids.

    Args:
        num_epochs: The number of epochs with different random changes.
    """
    settings = _settings_of(config, tokenizers, num_epochs, _WITHOUT_INFLUENCE)
    if not (config.training.subword_dropout or config.data.terms or config.data.augment):
        del settings["training.seed"], settings["training.subword_samples"]
    return settings


def settings_of_validation(config: Config, tokenizers: TokenizerPair) -> dict[str, Any]:
    """Returns all settings that the token ids of the validation text depend on."""
    return _settings_of(config, tokenizers, 1, _WITHOUT_INFLUENCE | _ONLY_FOR_TRAINING)


def _settings_of(
    config: Config, tokenizers: TokenizerPair, num_epochs: int, left_out: frozenset[str]
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "format_version": _FORMAT_VERSION,
        "versions": _versions(),
        "tokenizers": {
            name: {
                "class": type(tokenizer).__name__,
                "sha256": hashlib.sha256(tokenizer.file_content).hexdigest(),
                "normalization": tokenizer.normalization,
            }
            for name, tokenizer in tokenizers.files().items()
        },
        "epochs": num_epochs,
        "has_links": config.training.guided_alignment > 0
        and "training.guided_alignment" not in left_out,
    }
    for section, values in dataclasses.asdict(config).items():
        for name, value in values.items():
            if f"{section}.{name}" not in left_out:
                settings[f"{section}.{name}"] = value
    if not config.decoding.placeholders:
        del settings["decoding.keep"], settings["decoding.placeholder_patterns"]
    return settings


def _versions() -> dict[str, str]:
    """Returns the versions of everything that tokenizes or draws random numbers."""
    return {
        "keras_transformer": keras_transformer.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "regex": regex.__version__,
        "sentencepiece": sentencepiece.__version__,
        "tensorflow": tf.__version__,
        "tensorflow_text": tensorflow_text.__version__,
    }


def _settings_of_text(
    pairs: SentencePairs, text: TextFingerprint, settings: dict[str, Any]
) -> dict[str, Any]:
    """Returns the part of an entry's settings that depends on the text, given all others."""
    of_text = {"text": text, "weights": pairs.weights, "tags": pairs.tags}
    if pairs.weights and (settings["epochs"] > 1 or settings.get("data.terms")):
        # Later epochs may contain pairs that the first epoch leaves out, and terms are found in all
        # pairs.
        of_text["all_pairs"] = fingerprint_of(zip(pairs.source, pairs.target, strict=True))
    return of_text


def _fingerprint(pairs: SentencePairs) -> TextFingerprint:
    """Returns the fingerprint that `encode` will compute."""
    text = TextHash()
    with ProgressBar(f"reading {pairs.name}", "sentence pairs", pairs_per_epoch(pairs)) as bar:
        for chunk in in_chunks(pairs_of_epoch(pairs, epoch=0)):
            sources, targets, tags = zip(*chunk)
            text.add(map(operator.add, tags, sources), targets)
            bar.advance(len(chunk))
    return text.fingerprint()


def _shows_damage(error: BaseException) -> bool:
    """Returns whether an error shows that an entry is damaged, so that it never becomes usable."""
    if isinstance(error, OSError):
        # Other errors may be temporary, or concern only this user.
        return isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
    # There may be too little memory, or too many threads.
    return not isinstance(error, MemoryError | RuntimeError)


def _is_at(descriptor: int, path: pathlib.Path) -> bool:
    """Returns whether an open directory is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _in_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings as they are read from a file, in the order of their names."""
    return json.loads(json.dumps(settings, sort_keys=True))


def _write_entry(encoded: EncodedPairs, settings: dict[str, Any]) -> None:
    """Adds the settings, the values and the checksums to a directory of token ids."""
    directory = encoded.directory
    values = {
        "settings": settings,
        "num_blocks": encoded.num_blocks,
        "dtype": encoded.dtype,
        "num_empty": encoded.num_empty,
        "num_too_long": encoded.num_too_long,
    }
    with naming_errors(directory / _VALUES):
        (directory / _VALUES).write_text(json.dumps(values, indent=2) + "\n", "utf-8")
    names = [_VALUES, *_files_of_blocks(encoded.num_blocks, settings["has_links"])]
    lines = [f"{checksum}  {name}\n" for name, checksum in _checksums(directory, names).items()]
    with naming_errors(directory / _CHECKSUMS):
        (directory / _CHECKSUMS).write_text("".join(lines), "utf-8")


def _read_entry(entry: pathlib.Path, settings: dict[str, Any]) -> EncodedPairs:
    """Reads an entry, and checks all of its files.

    Raises an error of `UNREADABLE` if the entry is damaged.
    """
    lines = read_limited(entry / _CHECKSUMS, _MAX_BYTES).decode().splitlines()
    expected = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    if not all(map(_NAME_OF_FILE.fullmatch, expected)):
        raise ValueError(f"{_CHECKSUMS} names other files")
    received = _checksums(entry, expected)
    damaged = [name for name in expected if received[name] != expected[name]]
    if damaged:
        raise ValueError(f"{damaged[0]} is damaged")
    values = json.loads(read_limited(entry / _VALUES, _MAX_BYTES))
    if values.pop("settings") != settings:
        raise ValueError(f"{_VALUES} has other settings")
    names = _files_of_blocks(values["num_blocks"], settings["has_links"])
    if {_VALUES, *names} != expected.keys():
        raise ValueError(f"{_CHECKSUMS} does not name all files")
    return EncodedPairs(
        directory=entry,
        length_counts=read_length_counts(entry, values["num_blocks"]),
        fingerprint=settings["text"],
        has_links=settings["has_links"],
        **values,
    )


def _files_of_blocks(num_blocks: int, has_links: bool) -> list[str]:
    kinds = ["source.ids", "source.lengths", "target.ids", "target.lengths"]
    if has_links:
        kinds.append("target.links")
    return [f"{block}.{kind}" for block in range(num_blocks) for kind in kinds]


def _checksums(directory: pathlib.Path, names: Iterable[str]) -> dict[str, str]:
    def checksum(name: str) -> str:
        with open(directory / name, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    names = list(names)
    # Hashing releases the GIL.
    with (
        ProgressBar(f"checking {directory}", "files", len(names)) as bar,
        concurrent.futures.ThreadPoolExecutor(num_cores()) as pool,
    ):
        return dict(zip(names, bar.count(pool.map(checksum, names)), strict=True))


def _rename_if_free(directory: pathlib.Path, entry: pathlib.Path) -> bool:
    """Renames a directory, and returns whether the name was free."""
    try:
        rename(directory, entry)
    except OSError as error:
        if error.errno not in _EXISTS:
            raise
        return False
    return True
