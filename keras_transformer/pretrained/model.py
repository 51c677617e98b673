"""What is known of a model that another program trained, and how it becomes a model directory."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ..config import Config
from ..errors import ConfigError
from ..model_dir import ModelDir
from ..model_dir.files import rename, temporary_beside
from ..model_dir.weights_file import save_weights
from ..models import Transformer, build_transformer
from ..tokenizers import Tokenizer, TokenizerPair

# The bias of tokens that the other program does not have: its probability is 0 in float32, yet the loss stays finite.
_IMPOSSIBLE = -100.0


class PretrainedModel(NamedTuple):
    """A model of another program.

    Attributes:
        config: Config.
        tokenizers: TokenizerPair.
        weights: the other program's arrays by our names, such as "encoder/0/attention/query/kernel", in the shapes that
            Keras has.
        source_rows: the other program's id of each of our source ids, or None for a row of zeros.
        target_rows: the same for the target.
    """

    config: Config
    tokenizers: TokenizerPair
    weights: Mapping[str, np.ndarray]
    source_rows: Sequence[int | None]
    target_rows: Sequence[int | None]


class _Weight(NamedTuple):
    name: str
    variable: Any
    model_axes: tuple[int, ...] = ()  # Axes of d_model.
    rows: tuple[int, Sequence[int | None]] | None = None  # The axis of the vocabulary, and its rows.


def tie_embeddings(weights: Mapping[str, np.ndarray]) -> Literal["none", "target", "all"]:
    """Returns what `TransformerConfig` calls the way in which the weights of a file are shared."""
    if "logits/kernel" in weights:
        return "none"
    return "target" if "source_embedding" in weights else "all"


def write_model_dir(model: PretrainedModel, path: pathlib.Path) -> pathlib.Path:
    """Writes a model directory, whole or not at all, and returns its path.

    Raises:
        ConfigError: The directory exists, or a weight is missing or has another shape.
    """
    if path.exists():
        raise ConfigError(f"{path}: it exists already; a model is imported into a new directory")
    transformer = build_transformer(model.config.model, dtype="float32")
    expected = {weight.name: weight for weight in _weights(transformer, model)}
    for name in sorted(expected.keys() ^ model.weights.keys()):
        problem = "is missing" if name in expected else "is one too many"
        raise ConfigError(f"the weight {name} {problem}: the model is not what its options say")
    for name, weight in expected.items():
        weight.variable.assign(_converted(weight, model.weights[name]))
    if transformer.output_projection.bias is not None:
        start = np.arange(model.config.model.target_vocab_size) == Tokenizer.start_id
        missing = np.array([row is None for row in model.target_rows])
        bias = np.asarray(transformer.output_projection.bias)
        transformer.output_projection.bias.assign(np.where(start | missing, _IMPOSSIBLE, bias))
    with temporary_beside(path, is_directory=True) as temporary:
        model_dir = ModelDir(temporary)
        model.tokenizers.save(temporary)
        save_weights(transformer, model_dir.best_path)
        model_dir.write_config(model.config)
        rename(temporary, path)
    return path


def _weights(transformer: Transformer, model: PretrainedModel) -> Iterator[_Weight]:
    """All weights, with what has to be done to them."""
    for side, stack in (("encoder", transformer.encoder), ("decoder", transformer.decoder)):
        for i, layer in enumerate(stack.layers):
            yield from _of_layer(f"{side}/{i}", layer)
        if stack.final_norm is not None:
            yield from _of_norm(f"{side}/final_norm", stack.final_norm)
    source, target = transformer.source_embedding, transformer.target_embedding
    yield _Weight("target_embedding", target.token_table, (1,), (0, model.target_rows))
    if source is not target:
        yield _Weight("source_embedding", source.token_table, (1,), (0, model.source_rows))
    projection = transformer.output_projection
    if model.config.model.tie_embeddings == "none":
        yield _Weight("logits/kernel", projection.kernel, (0,), (1, model.target_rows))
    if projection.bias is not None:
        yield _Weight("logits/bias", projection.bias, (), (0, model.target_rows))


def _of_layer(name: str, layer: Any) -> Iterator[_Weight]:
    for sublayer in ("attention", "source_attention"):
        if (attention := getattr(layer, sublayer, None)) is None:
            continue
        for part in ("query", "key", "value", "output"):
            is_output = part == "output"
            yield from _of_dense(f"{name}/{sublayer}/{part}", getattr(attention, f"{part}_dense"), is_output)
        yield from _of_norm(f"{name}/{sublayer}/norm", getattr(layer, f"{sublayer}_residual").norm)
    yield from _of_dense(f"{name}/feed_forward/hidden", layer.feed_forward.hidden_dense, False)
    yield from _of_dense(f"{name}/feed_forward/output", layer.feed_forward.output_dense, True)
    yield from _of_norm(f"{name}/feed_forward/norm", layer.feed_forward_residual.norm)


def _of_dense(name: str, dense: Any, to_model: bool) -> Iterator[_Weight]:
    yield _Weight(f"{name}/kernel", dense.kernel, (1,) if to_model else (0,))
    if dense.use_bias:
        yield _Weight(f"{name}/bias", dense.bias, (0,) if to_model else ())


def _of_norm(name: str, norm: Any) -> Iterator[_Weight]:
    yield _Weight(f"{name}/gamma", norm.gamma, (0,))
    yield _Weight(f"{name}/beta", norm.beta, (0,))


def _converted(weight: _Weight, array: np.ndarray) -> np.ndarray:
    shape = list(weight.variable.shape)
    if weight.rows is not None:
        axis, rows = weight.rows
        shape[axis] = 1 + max(row for row in rows if row is not None)
    if list(array.shape) != shape:
        raise ConfigError(f"the weight {weight.name} must have the shape {tuple(shape)}; received {array.shape}")
    if weight.rows is not None:
        array = np.take(array, [row or 0 for row in rows], axis=axis)
        array = np.moveaxis(array, axis, 0)
        array[[row is None for row in rows]] = 0
        array = np.moveaxis(array, 0, axis)
    for axis in weight.model_axes:
        array = np.take(array, _interleaved(array.shape[axis]), axis=axis)
    return array


def _interleaved(d_model: int) -> np.ndarray:
    """Where each place of the model axis comes from: the others' sinusoids are all sines, then all cosines."""
    return np.arange(d_model).reshape(2, -1).T.ravel()
