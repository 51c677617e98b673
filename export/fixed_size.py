"""The network as two files of fixed size, for LiteRT or ONNX Runtime: the encoder, and a step of the decoder."""

import os
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.config.rules import require
from keras_transformer.errors import ConfigError, VerificationError
from keras_transformer.masks import padding_mask
from keras_transformer.models import Transformer
from keras_transformer.runtime.backend import silenced
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.translation import Translator

from .versions import PROBES, publish

FixedSizeFormat = Literal["litert", "onnx"]
LENGTH = 64
_SUFFIXES: dict[FixedSizeFormat, str] = {"litert": ".tflite", "onnx": ".onnx"}

# Takes inputs by name.
_Run = Callable[..., np.ndarray]


def export_fixed_size(
    translator: Translator,
    output: str | os.PathLike[str],
    format: FixedSizeFormat,
    length: int = LENGTH,
    version: int | None = None,
) -> pathlib.Path:
    """Writes `output/<version>/`: `encoder` and `decoder`, as .tflite or .onnx files, and the tokenizers' files.

    The encoder takes "source", int32 (1, length): token ids, the end token, and 0 after it. It returns the encoded
    source, float32 (1, length, d_model), which the decoder takes as "encoded", with "source", "target", int32
    (1, length): the start token, what was translated so far, and 0 after it; and "position", int32 (1,): the place of
    the newest of them. It returns the logits of the token after that one, float32 (1, target_vocab_size).

    The directory appears when it is complete and the files have given the logits of the model for some texts. There is
    neither tokenizer nor search in the graphs, and no cache: each step computes the whole target again.

    Args:
        translator: Translator.
        output: str or path of the directory of the model's versions.
        format: "litert" or "onnx". ONNX needs the packages onnxruntime and tf2onnx.
        length: int. Tokens of a source with its end token, and of a translation. Defaults to 64.
        version: int or None. Defaults to one more than the highest version.

    Returns:
        The path of the version's directory.

    Raises:
        ConfigError: `length` is more than the model's `max_length`, or the version exists or is not positive.
        VerificationError: The files compute other logits than the model.
    """
    model = translator.model
    if not isinstance(model, Transformer):
        raise ConfigError(f"translator.model must be a Transformer; received a {type(model).__name__}")
    require(1 < length <= model.config.max_length, "length", f"from 2 to {model.config.max_length}", length)

    def write(directory: pathlib.Path) -> None:
        source, target = (
            keras.Input(batch_shape=(1, length), dtype="int32", name=name) for name in ("source", "target")
        )
        encoded = keras.Input(batch_shape=(1, length, model.config.d_model), name="encoded")
        position = keras.Input(batch_shape=(1,), dtype="int32", name="position")
        hidden = model.decoder(
            model.target_embedding(target),
            encoded,
            target_mask=padding_mask(target),
            source_mask=padding_mask(source),
        )
        logits = model.output_projection(ops.take(hidden, position, axis=1))[:, 0]
        encoder, decoder = (directory / f"{name}{_SUFFIXES[format]}" for name in ("encoder", "decoder"))
        _export(encoder, format, [source], model.encode(source)[0])
        _export(decoder, format, [source, encoded, target, position], logits)
        for name, tokenizer in translator.tokenizers.files().items():
            (directory / name).write_bytes(tokenizer.file_content)
        # It says that this interpreter will move to another package, and which kernels it has.
        with warnings.catch_warnings(action="ignore"), silenced():
            _verify(_load(encoder), _load(decoder), model, translator.tokenizers, length)

    return publish(output, version, write)


def _export(
    path: pathlib.Path, format: FixedSizeFormat, inputs: list[keras.KerasTensor], outputs: keras.KerasTensor
) -> None:
    model = keras.Model({each.name: each for each in inputs}, outputs)
    # Keras exports to ONNX only what was called before.
    model({each.name: np.zeros(each.shape, each.dtype) for each in inputs})
    model.export(path, format=format, verbose=False)


def _load(path: pathlib.Path) -> _Run:
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        return lambda **inputs: session.run(None, inputs)[0]
    runner = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda **inputs: next(iter(runner(**inputs).values()))


def _verify(encode: _Run, decode: _Run, model: Transformer, tokenizers: TokenizerPair, length: int) -> None:
    """Compares the logits of some texts, each given as its own translation, at the first token and after the last."""
    sides = [tokenizer.tokenize(PROBES).to_list() for tokenizer in tokenizers]
    for source_ids, target_ids in zip(*sides, strict=True):
        inputs: Mapping[str, Any] = {
            "source": _padded([*source_ids[: length - 1], tokenizers.source.end_id], length),
            "target": _padded([tokenizers.target.start_id, *target_ids[: length - 1]], length),
        }
        expected = ops.convert_to_numpy(model(inputs))[0]
        encoded = encode(source=inputs["source"])
        for position in {0, min(len(target_ids), length - 1)}:
            received = decode(**inputs, encoded=encoded, position=np.array([position], "int32"))[0]
            if not np.allclose(received, expected[position], rtol=1e-3, atol=1e-3):
                difference = np.abs(received - expected[position]).max()
                raise VerificationError(f"the exported decoder's logits differ by {difference:.2g} from the model's")


def _padded(token_ids: list[int], length: int) -> np.ndarray:
    return np.array([token_ids + [0] * (length - len(token_ids))], "int32")
