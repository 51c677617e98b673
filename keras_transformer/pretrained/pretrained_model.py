"""Parts of the readers of all formats: limits for files, tokenizers, writing a model directory.

If a file of another program is missing, too large or damaged, or holds something else, an
InvalidFileError names it.
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
# A tokenizer, and the other program's id of each of its ids, or None for a row of zeros.
TokenizerAndRows = tuple[Tokenizer, Sequence[int | None]]

# The limit for vocabularies and SentencePiece models: far above what any model needs.
MAX_VOCABULARY_BYTES = 16 * 2**20
_MAX_NAME_LENGTH = 200
# The bias of tokens that the other program does not have: their probability is 0 in float32, yet
# the loss stays finite.
_NEVER_CHOSEN_LOGIT = -100.0
_END, _UNKNOWN, _PADDING = "</s>", "<unk>", "<pad>"
# Only tokenizers of this package have this special piece.
_START = "<start>"
# The axis of the weights that go along a vocabulary.
_VOCABULARY_AXES = {
    "source_embedding": 0,
    "target_embedding": 0,
    "logits/kernel": 1,
    "logits/bias": 0,
}


class PretrainedModel(NamedTuple):
    """A model of another program.

    Attributes:
        path: the file that holds the weights, for messages.
        weights: the other program's arrays by our names, such as
            "encoder/0/attention/query/kernel", in the shapes that Keras has.
        source_rows: the other program's id of each of our source ids, or None for a row of zeros.
        target_rows: the same for the target.
    """

    path: pathlib.Path
    config: Config
    tokenizers: TokenizerPair
    weights: Mapping[str, np.ndarray]
    source_rows: Sequence[int | None]
    target_rows: Sequence[int | None]

    def rows_of(self, name: str) -> Sequence[int | None]:
        """Returns the rows of a weight that goes along a vocabulary."""
        return self.source_rows if name == "source_embedding" else self.target_rows


@contextlib.contextmanager
def reading(path: pathlib.Path, *damages: type[Exception]) -> Iterator[None]:
    """Turns a ConfigError about the content of a file into an InvalidFileError that names it.

    It does the same with `damages`, which libraries raise for damaged files.
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
    """Returns the value of an option, checked for its type; one that is null counts as missing.

    An int passes for a float. Without a default, a missing option is a ConfigError.
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
    """Raises a ConfigError if an option has another value than those that this package supports.

    An option that is missing or null has the first of its values.
    """
    for name, values in supported.items():
        value = options.get(name)
        # In Python, True equals 1.
        typed_values = [(type(known), known) for known in values]
        if value is not None and (type(value), value) not in typed_values:
            raise ConfigError(f"the option {name}: {shown(value)} is not supported")


def require_file(path: pathlib.Path) -> None:
    """Refuses directories, and pipes that never end."""
    # Unlike `path.is_file()`, this is False also for a name that is too long for any file.
    if not os.path.isfile(path):
        reason = "this is no file" if os.path.exists(path) else "the file is missing"
        raise InvalidFileError(f"{path}: {reason}")


def array_name(filename: str) -> str:
    name = filename.removesuffix(".npy")
    if not (name.isprintable() and 0 < len(name) <= _MAX_NAME_LENGTH):
        raise ConfigError(f"the file cannot be read (an array is called {shown(name)})")
    return name


class Tokenizers(NamedTuple):
    """The tokenizers of a folder, with the rows of `PretrainedModel`."""

    config: TokenizerConfig
    pair: TokenizerPair
    source_rows: Sequence[int | None]
    target_rows: Sequence[int | None]

    @classmethod
    def of(cls, source: TokenizerAndRows, target: TokenizerAndRows) -> "Tokenizers":
        """Joins the tokenizers of both languages; equal ones become the same object."""
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
    """Makes a tokenizer of a SentencePiece model and the ids of pieces.

    Args:
        path: the SentencePiece model.
        ids_path: the file that the ids were read from, for messages.
        num_rows: the number of the model's ids.
        start_id: the id that translations begin with. Defaults to None: zeros.

    Raises:
        InvalidFileError: `path` is no SentencePiece model, the ids are not those from 0 to
            `num_rows - 1`, a special piece is missing, or a piece cannot be one of a tokenizer's.
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
            raise ConfigError(
                f"the vocabulary must not have {_START}, which is a special piece here"
            )
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
    """Returns a file's array as a weight: finite numbers of float32, a matrix or a vector."""
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
    """Writes a model directory, which must not exist, whole or not at all, and returns its path."""
    if path.exists():
        raise ConfigError(f"{path}: it exists already; import the model into a new directory")
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
    """Compares the arrays of a file with the weights that its options ask for.

    It allocates no memory for these.

    Raises:
        InvalidFileError: A weight is missing, is one too many, or has another shape.
    """
    with reading(model.path):
        encoder_layers, decoder_layers = model.config.model.depths
        # Look for one weight of each layer first: a thousand layers would take minutes to build.
        layers = {f"encoder/{i}/attention/query/kernel" for i in range(encoder_layers)}
        layers |= {f"decoder/{i}/attention/query/kernel" for i in range(decoder_layers)}
        _refuse(layers - model.weights.keys(), "is missing")
        # Only describe the variables; do not create them.
        with keras.StatelessScope(initialize_variables=False):
            transformer = build_transformer(model.config.model, dtype="float32")
            shapes = {name: list(variable.shape) for name, variable in named_weights(transformer)}
        _refuse(shapes.keys() - model.weights.keys(), "is missing")
        _refuse(model.weights.keys() - shapes.keys(), "is one too many")
        for name, shape in shapes.items():
            if name in _VOCABULARY_AXES:
                # A file has a row for each of the other program's ids.
                last_row = max(row for row in model.rows_of(name) if row is not None)
                shape[_VOCABULARY_AXES[name]] = 1 + last_row
            received = model.weights[name].shape
            rule = f"of the shape {tuple(shape)}"
            require(received == tuple(shape), f"the weight {name}", rule, received)


def _refuse(names: Set[str], problem: str) -> None:
    if names:
        raise ConfigError(
            f"the weight {min(names)} {problem}: the model is not what its options say"
        )


def model_axis(name: str) -> int | None:
    """Returns the axis of a weight that goes along the model's width; None if it has none."""
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
    """Returns our order of the model axis, in which sines and cosines alternate.

    Other programs have all sines first.
    """
    return np.arange(d_model).reshape(2, -1).T.ravel()
