"""Exports a translator as two ONNX graphs: the encoder, and a decoder step with its cache."""

import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from keras import ops

from keras_transformer.layers.cache import GrowingCache, KeyValues
from keras_transformer.models import Transformer
from keras_transformer.models.incremental_decoding import CacheEntries, DecoderState, decoder_step
from keras_transformer.tensors import Tensor
from keras_transformer.tokenizers import Tokenizer
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.translation import Translator

from .publishing import PROBES, publish, transformer_of, verify_scores

# The newest ONNX operator set that tf2onnx supports.
_OPSET = 18


def export_onnx(
    translator: Translator, output: str | os.PathLike[str], version: int | None = None
) -> pathlib.Path:
    """Writes `encoder.onnx` and `decoder.onnx` to `output/<version>/` and returns the path.

    The tokenizer files are in the same directory. Batch size and lengths are dynamic.

    The encoder accepts "source", int32 (batch, source length): token ids with the end token, padded
    with 0. It returns "source_mask", "source_keys" and "source_values", which are inputs of the
    decoder. The decoder also accepts "token_ids", int32 (batch,), which is the start token in the
    first step and the last chosen token in later steps. Its remaining inputs are the cache, "keys"
    and "values", float32 (layers, batch, heads, length, width), with length 0 in the first step.
    The decoder returns "logits", float32 (batch, target_vocab_size), and the next cache,
    "next_keys" and "next_values".

    The directory appears only after ONNX Runtime has computed the same scores for test texts as the
    translator. Tokenizers, search and shortlist are not part of the graphs.

    Args:
        version: Version number. Defaults to None: one more than the highest version.

    Raises:
        ConfigError: The model is not a Transformer, or the version exists or is not positive.
        VerificationError: ONNX Runtime and the translator compute different log probabilities.
    """
    model = transformer_of(translator)

    def write(directory: pathlib.Path) -> None:
        _convert(_encoder(model), directory / "encoder.onnx")
        _convert(_decoder(model), directory / "decoder.onnx")
        for name, tokenizer in translator.tokenizers.files().items():
            (directory / name).write_bytes(tokenizer.file_content)
        verify_scores(_scores(directory, translator), translator, "ONNX Runtime")

    return publish(output, version, write)


def _convert(function: tf.types.experimental.GenericFunction, path: pathlib.Path) -> None:
    tf2onnx.convert.from_function(
        function,
        function.input_signature,
        opset=_OPSET,
        custom_op_handlers={"Erfc": (_convert_erfc, [])},
        output_path=str(path),
    )


def _convert_erfc(
    graph: tf2onnx.graph.Graph, node: tf2onnx.graph.Node, name: str, arguments: Sequence[str]
) -> None:
    """Converts `Erfc`, which GELU needs but tf2onnx and ONNX do not support, to 1 - erf(x)."""
    one = graph.make_const(tf2onnx.utils.make_name(name), np.float32(1))
    erf = graph.make_node("Erf", node.input)
    difference = graph.make_node("Sub", [one.output[0], erf.output[0]])
    graph.replace_all_inputs(node.output[0], difference.output[0])


def _encoder(model: Transformer) -> tf.types.experimental.GenericFunction:
    source_spec = tf.TensorSpec((None, None), tf.int32, name="source")

    @tf.function(input_signature=[source_spec], autograph=False)
    def encode(source: Tensor) -> Mapping[str, Tensor]:
        encoded, source_mask = model.encode(source)
        source_key_values = model.decoder.project_source(encoded)
        return {
            "source_mask": source_mask,
            **_stacked(source_key_values, "source_keys", "source_values"),
        }

    return encode


def _decoder(model: Transformer) -> tf.types.experimental.GenericFunction:
    # Keys and values: (layers, batch, heads, length, width)
    cached = model.decoder.layers[0].self_attention.init_cache(1, 1)
    key_shape, value_shape = (
        (model.decoder.num_layers, None, tensor.shape[1], None, tensor.shape[3])
        for tensor in cached
    )
    specs = [
        tf.TensorSpec((None,), tf.int32, name="token_ids"),
        tf.TensorSpec((None, None), tf.bool, name="source_mask"),
        tf.TensorSpec(key_shape, tf.float32, name="source_keys"),
        tf.TensorSpec(value_shape, tf.float32, name="source_values"),
        tf.TensorSpec(key_shape, tf.float32, name="keys"),
        tf.TensorSpec(value_shape, tf.float32, name="values"),
    ]

    @tf.function(input_signature=specs, autograph=False)
    def decode(
        token_ids: Tensor,
        source_mask: Tensor,
        source_keys: Tensor,
        source_values: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> Mapping[str, Tensor]:
        batch_size = ops.shape(keys)[1]
        position = ops.shape(keys)[3]
        entries = CacheEntries(batch_size, beam_size=1, max_length=None, prefix=None)
        step = decoder_step(model.target_embedding, model.decoder, model.output_projection, entries)
        caches = [GrowingCache(*pair) for pair in zip(ops.unstack(keys), ops.unstack(values))]
        source_pairs = zip(ops.unstack(source_keys), ops.unstack(source_values))
        source = [KeyValues(*pair) for pair in source_pairs]
        # Each row has a single hypothesis, and all cache entries of the row belong to it.
        is_of_hypothesis = ops.ones((batch_size, 1, position), "bool")
        state = DecoderState(is_of_hypothesis, caches, (source, source_mask), ())
        token_ids = ops.expand_dims(token_ids, 1)
        logits, state = step(token_ids, ops.zeros_like(token_ids), position, state)
        return {"logits": logits[:, 0], **_stacked(state.caches, "next_keys", "next_values")}

    return decode


def _stacked(layers: Sequence[KeyValues], *names: str) -> dict[str, Tensor]:
    return {name: ops.stack(tensors) for name, tensors in zip(names, zip(*layers))}


def _scores(directory: pathlib.Path, translator: Translator) -> np.ndarray:
    """Returns ONNX Runtime's log probabilities of `PROBES` as their own translations."""
    encoder = onnxruntime.InferenceSession(directory / "encoder.onnx")
    decoder = onnxruntime.InferenceSession(directory / "decoder.onnx")
    texts = tf.constant(PROBES)
    codec = TextCodec(translator.tokenizers, translator.model.config.max_length)
    source, labels = (encoded.token_ids.to_tensor() for encoded in codec.encode_pairs(texts, texts))
    names = ["source_mask", "source_keys", "source_values"]
    state = dict(zip(names, encoder.run(names, {"source": source.numpy()})))
    # The cache is empty at first.
    state["keys"] = state["source_keys"][:, :, :, :0]
    state["values"] = state["source_values"][:, :, :, :0]
    token_ids = np.full(len(PROBES), Tokenizer.start_id, "int32")
    scores = np.zeros(len(PROBES))
    for next_ids in labels.numpy().T:
        logits, state["keys"], state["values"] = decoder.run(
            ["logits", "next_keys", "next_values"], {**state, "token_ids": token_ids}
        )
        log_probs = logits[np.arange(len(PROBES)), next_ids] - np.logaddexp.reduce(logits, axis=1)
        scores += np.where(next_ids == Tokenizer.pad_id, 0, log_probs)
        token_ids = next_ids
    return scores
