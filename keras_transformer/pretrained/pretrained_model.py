"""Common parts of the readers: file limits, tokenizers and writing the model directory.

If a file is missing, too large, damaged or of the wrong kind, they raise an InvalidFileError that
names the file.
"""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Literal, NamedTuple, TypeVar

import keras
import numpy as np

from ..checks import boolean, integer, number, require, shown, text
from ..config import Config, TokenizerConfig
from ..errors import ConfigError, InvalidFileError
from ..model_dir import ModelDir
from ..model_dir.directory import save_weights
from ..model_dir.files import read_limited, rename, temporary_beside
from ..models.transformer import build_transformer, named_weights
from ..tokenizers import PretrainedSentencePieceTokenizer, Tokenizer, TokenizerPair
from ..tokenizers.sentencepiece import check_piece

Value = TypeVar("Value", bool, int, float, str)
# A tokenizer, and for each of its ids the id in the other program, or None for a row of zeros.
TokenizerAndRows = tuple[Tokenizer, Sequence[int | None]]

# Size limit for vocabularies and SentencePiece models, far above the size in any model.
MAX_VOCABULARY_BYTES = 16 * 2**20
_MAX_NAME_LENGTH = 200
# Bias of tokens that are missing in the other program. Their probability is 0 in float32, but the
# loss stays finite.
_NEVER_CHOSEN_LOGIT = -100.0
_END, _UNKNOWN, _PADDING = "</s>", "<unk>", "<pad>"
# Special piece that only tokenizers of this package have.
_START = "<start>"
# The vocabulary axis of each weight that has one.
_VOCABULARY_AXES = {
    "source_embedding": 0,
    "target_embedding": 0,
    "logits/kernel": 1,
    "logits/bias": 0,
}


class PretrainedModel(NamedTuple):
    """A model of another program.

    Attributes:
        path: weights file, for error messages.
        config: configuration.
        tokenizers: source and target tokenizer.
        weights: arrays of the other program by our names, such as
            "encoder/0/self_attention/query/kernel", with Keras shapes.
        source_rows: for each source id of this package, the corresponding id in the other program,
            or None for a row of zeros.
        target_rows: the same for target ids.
    """

    path: pathlib.Path
    config: Config
    tokenizers: TokenizerPair
    weights: Mapping[str, np.ndarray]
    source_rows: Sequence[int | None]
    target_rows: Sequence[int | None]

    def rows_of(self, name: str) -> Sequence[int | None]:
        """Returns the rows for a weight with a vocabulary axis."""
        return self.source_rows if name == "source_embedding" else self.target_rows


@contextlib.contextmanager
def reading(path: pathlib.Path, *damages: type[Exception]) -> Iterator[None]:
    """Converts a ConfigError about the content of a file to an InvalidFileError with its path.

    The exceptions in `damages`, which libraries raise for damaged files, are converted too.
    """
    try:
        yield
    except ConfigError as error:
        raise InvalidFileError(f"{path}: {error}") from None
    except damages as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InvalidFileError(f"{path}: the file cannot be read ({reason})") from None


def read_bytes(path: pathlib.Path, max_bytes: int = MAX_VOCABULARY_BYTES) -> bytes:
    require_file(path)
    with reading(path, OSError):
        return read_limited(path, max_bytes)


_CHECKS: dict[type, Callable[[str, Any], Any]] = {
    bool: boolean,
    float: number,
    int: integer,
    str: text,
}


def option(
    options: Mapping[str, object], name: str, kind: type[Value], default: Value | None = None
) -> Value:
    """Returns the value of an option and checks its type.

    An option that is null counts as missing, and an int is accepted for a float.

    Raises:
        ConfigError: If the type is wrong, or the option is missing and has no default.
    """
    value: Any = options.get(name)
    value = default if value is None else value
    _CHECKS[kind](name, value)
    try:
        return kind(value)
    except OverflowError:
        raise ConfigError(f"{name} must be a finite number; received {shown(value)}") from None


def require_supported(
    options: Mapping[str, object], supported: Mapping[str, tuple[object, ...]]
) -> None:
    """Raises a ConfigError if an option has an unsupported value.

    An option that is missing or null has the first supported value.
    """
    for name, values in supported.items():
        value = options.get(name)
        # Compare types as well, because True equals 1.
        typed_values = [(type(known), known) for known in values]
        if value is not None and (type(value), value) not in typed_values:
            raise ConfigError(f"the option {name}: {shown(value)} is not supported")


def require_file(path: pathlib.Path) -> None:
    """Rejects paths that are not regular files, such as directories and endless pipes."""
    # Unlike `path.is_file()`, this does not raise an error for names that are too long.
    if not os.path.isfile(path):
        reason = "not a regular file" if os.path.exists(path) else "the file is missing"
        raise InvalidFileError(f"{path}: {reason}")


def array_name(filename: str) -> str:
    name = filename.removesuffix(".npy")
    if not (name.isprintable() and 0 < len(name) <= _MAX_NAME_LENGTH):
        raise ConfigError(f"the file cannot be read (invalid array name {shown(name)})")
    return name


class ForeignTokenizers(NamedTuple):
    """Tokenizers of a folder, with the rows of `PretrainedModel`."""

    config: TokenizerConfig
    pair: TokenizerPair
    source_rows: Sequence[int | None]
    target_rows: Sequence[int | None]

    @classmethod
    def of(cls, source: TokenizerAndRows, target: TokenizerAndRows) -> "ForeignTokenizers":
        """Combines the tokenizers of both languages. Equal tokenizers become the same object."""
        source_tokenizer, source_rows = source
        target_tokenizer, target_rows = target
        is_shared = source_tokenizer.file_content == target_tokenizer.file_content
        if is_shared:
            target_tokenizer = source_tokenizer
        pair = TokenizerPair(source_tokenizer, target_tokenizer)
        config = TokenizerConfig("sentencepiece", pair.target.vocab_size, is_shared)
        return cls(config, pair, source_rows, target_rows)


def read_tokenizer(
    path: pathlib.Path,
    ids: Mapping[str, int],
    ids_path: pathlib.Path,
    num_rows: int,
    start_id: int | None = None,
) -> TokenizerAndRows:
    """Creates a tokenizer from a SentencePiece model and the ids of its pieces.

    Args:
        path: SentencePiece model file.
        ids: dict from piece to id.
        ids_path: file with the ids, for error messages.
        num_rows: number of ids in the model.
        start_id: id of the token at the start of translations. Defaults to None: a row of zeros.

    Raises:
        InvalidFileError: If `path` is not a SentencePiece model, the ids are not 0 to
            `num_rows - 1`, a special piece is missing, or the tokenizer cannot store a piece.
    """
    with reading(ids_path):
        size = len(ids)
        require(size == num_rows, "the number of pieces", f"the model's {num_rows}", size)
        if sorted(ids.values()) != list(range(size)):
            raise ConfigError(f"the ids must be those from 0 to {size - 1}, each once")
        is_known = start_id is None or 0 <= start_id < size
        require(is_known, "the start id", f"0 to {size - 1}", start_id)
        for piece in ids:
            check_piece(piece)
        for piece in (_END, _UNKNOWN):
            if piece not in ids:
                raise ConfigError(f"the vocabulary has no {piece}")
        if _START in ids:
            raise ConfigError(f"the vocabulary must not have {_START}, which is reserved")
    pieces = sorted(ids.keys() - {_END, _UNKNOWN, _PADDING}, key=ids.__getitem__)
    with reading(path):
        tokenizer = PretrainedSentencePieceTokenizer.with_vocabulary(read_bytes(path), pieces)
    special = [ids.get(_PADDING), ids[_UNKNOWN], start_id, ids[_END]]
    return tokenizer, [*special, *(ids[piece] for piece in pieces)]


def tie_embeddings(weights: Mapping[str, np.ndarray]) -> Literal["none", "target", "all"]:
    """Returns the value of `TransformerConfig.tie_embeddings` for the weights of a file."""
    if "logits/kernel" in weights:
        return "none"
    return "target" if "source_embedding" in weights else "all"


def as_weight(name: str, array: np.ndarray) -> np.ndarray:
    """Converts an array to a weight: a float32 matrix or vector with finite values."""
    if name.endswith(("kernel", "embedding", "positions")):
        require(array.ndim == 2, f"the weight {name}", "a matrix", array.shape)
    else:
        array = array.ravel()
    with np.errstate(over="ignore"):
        array = array.astype("float32", copy=False)
    if not np.isfinite(array).all():
        raise ConfigError(f"the weight {name} has numbers that are NaN or infinite")
    return array


def write_model_dir(model: PretrainedModel, path: pathlib.Path) -> pathlib.Path:
    """Writes a new model directory atomically and returns its path."""
    if path.exists():
        raise ConfigError(f"{path} already exists; import the model into a new directory")
    check_weights(model)
    transformer = build_transformer(model.config.model, dtype="float32")
    for name, variable in named_weights(transformer):
        variable.assign(_converted(name, model))
    with temporary_beside(path, is_directory=True) as temporary:
        model_dir = ModelDir(temporary)
        model.tokenizers.save(temporary)
        save_weights(transformer, model_dir.best_path)
        model_dir.write_config(model.config)
        rename(temporary, path)
    return path


def check_weights(model: PretrainedModel) -> None:
    """Checks that the arrays of a file are the weights that its options require.

    This does not allocate memory for the weights.

    Raises:
        InvalidFileError: If a weight is missing, unexpected, or has the wrong shape.
    """
    with reading(model.path):
        encoder_layers, decoder_layers = model.config.model.depths
        # Look for a weight of each layer first, because building a thousand layers takes minutes.
        layers = {f"encoder/{i}/self_attention/query/kernel" for i in range(encoder_layers)}
        layers |= {f"decoder/{i}/self_attention/query/kernel" for i in range(decoder_layers)}
        _refuse(layers - model.weights.keys(), "is missing")
        # Get the shapes without creating the variables.
        with keras.StatelessScope(initialize_variables=False):
            transformer = build_transformer(model.config.model, dtype="float32")
            shapes = {name: list(variable.shape) for name, variable in named_weights(transformer)}
        _refuse(shapes.keys() - model.weights.keys(), "is missing")
        _refuse(model.weights.keys() - shapes.keys(), "is unexpected")
        for name, shape in shapes.items():
            if name in _VOCABULARY_AXES:
                # The file has a row for every id in the other program.
                last_row = max(row for row in model.rows_of(name) if row is not None)
                shape[_VOCABULARY_AXES[name]] = 1 + last_row
            received = model.weights[name].shape
            rule = f"of the shape {tuple(shape)}"
            require(received == tuple(shape), f"the weight {name}", rule, received)


def _refuse(names: Set[str], problem: str) -> None:
    if names:
        raise ConfigError(
            f"the weight {min(names)} {problem}: the weights do not match the options of the model"
        )


def model_axis(name: str) -> int | None:
    """Returns the axis of a weight that has the size `d_model`, or None."""
    *path, kind = name.split("/")
    if kind.endswith(("_embedding", "_positions")):
        return 1
    if kind in ("gamma", "beta"):
        return 0
    if path[-1] == "output":
        return 1 if kind == "kernel" else 0
    return 0 if kind == "kernel" else None


def _converted(name: str, model: PretrainedModel) -> np.ndarray:
    array = model.weights[name]
    if name in _VOCABULARY_AXES:
        axis = _VOCABULARY_AXES[name]
        rows = list(model.rows_of(name))
        missing = 0.0
        if name == "logits/bias":
            missing = _NEVER_CHOSEN_LOGIT
            # The start id may be the id of another token in the other program.
            if rows.count(rows[Tokenizer.start_id]) > 1:
                rows[Tokenizer.start_id] = None
        array = np.take(array, [row or 0 for row in rows], axis)
        np.moveaxis(array, axis, 0)[[row is None for row in rows]] = missing
    axis_of_model = model_axis(name)
    if axis_of_model is not None:
        order = interleaved(array.shape[axis_of_model])
        array = np.take(array, order, axis=axis_of_model)
    return array


def interleaved(d_model: int) -> np.ndarray:
    """Returns the order of the `d_model` axis in which sines and cosines alternate.

    Models of this package use this order. Other programs put all sines first.
    """
    return np.arange(d_model).reshape(2, -1).T.ravel()
