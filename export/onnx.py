"""The translator as two ONNX graphs: an encoder, and a decoder that adds one token at a time to its
cache."""

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

# The newest version that tf2onnx writes.
_OPSET = 18


def export_onnx(
    translator: Translator, output: str | os.PathLike[str], version: int | None = None
) -> pathlib.Path:
    """Writes `output/<version>/`: `encoder.onnx`, `decoder.onnx` and the files of the tokenizers;
    returns its path.

    Batch and lengths are of any size. The encoder takes "source", int32 (batch, source length):
    token ids with the end token, and 0 after it. It returns what the decoder attends to. The
    decoder takes this; "token_ids", int32 (batch,), first the start token, then the token that was
    chosen last; and a cache, "keys" and "values", float32 (layers, batch, heads, length, width),
    first of length 0. It returns "logits", float32 (batch, target_vocab_size), and its next cache.

    The directory appears when it is complete and has scored some texts as the translator does.
    Tokenizers, search and shortlist are not part of the graphs.

    Args:
        version: defaults to one more than the highest version.

    Raises:
        ConfigError: The model is not a Transformer, or the version exists or is not positive.
        VerificationError: ONNX Runtime gives other log probabilities than the translator.
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
    """Writes 1 - erf(x): GELU needs `Erfc`, which neither tf2onnx nor ONNX has."""
    one = graph.make_const(tf2onnx.utils.make_name(name), np.float32(1))
    difference = graph.make_node(
        "Sub", [one.output[0], graph.make_node("Erf", node.input).output[0]]
    )
    graph.replace_all_inputs(node.output[0], difference.output[0])


def _encoder(model: Transformer) -> tf.types.experimental.GenericFunction:
    @tf.function(
        input_signature=[tf.TensorSpec((None, None), tf.int32, name="source")], autograph=False
    )
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
    shapes = [
        (model.decoder.num_layers, None, tensor.shape[1], None, tensor.shape[3])
        for tensor in cached
    ]
    names = ("source_keys", "source_values", "keys", "values")

    @tf.function(
        input_signature=[
            tf.TensorSpec((None,), tf.int32, name="token_ids"),
            tf.TensorSpec((None, None), tf.bool, name="source_mask"),
            *(
                tf.TensorSpec(shape, tf.float32, name=name)
                for name, shape in zip(names, shapes * 2)
            ),
        ],
        autograph=False,
    )
    def decode(
        token_ids: Tensor,
        source_mask: Tensor,
        source_keys: Tensor,
        source_values: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> Mapping[str, Tensor]:
        batch_size, position = ops.shape(keys)[1], ops.shape(keys)[3]
        entries = CacheEntries(batch_size, beam_size=1, max_length=None, prefix=None)
        step = decoder_step(model.target_embedding, model.decoder, model.output_projection, entries)
        caches = [GrowingCache(*pair) for pair in zip(ops.unstack(keys), ops.unstack(values))]
        source = [
            KeyValues(*pair) for pair in zip(ops.unstack(source_keys), ops.unstack(source_values))
        ]
        # All entries of a row belong to its one hypothesis.
        state = DecoderState(
            ops.ones((batch_size, 1, position), "bool"), caches, (source, source_mask), ()
        )
        token_ids = ops.expand_dims(token_ids, 1)
        logits, state = step(token_ids, ops.zeros_like(token_ids), position, state)
        return {"logits": logits[:, 0], **_stacked(state.caches, "next_keys", "next_values")}

    return decode


def _stacked(layers: Sequence[KeyValues], *names: str) -> dict[str, Tensor]:
    return {name: ops.stack(tensors) for name, tensors in zip(names, zip(*layers))}


def _scores(directory: pathlib.Path, translator: Translator) -> np.ndarray:
    """The log probabilities of `PROBES`, each given as its own translation."""
    encoder, decoder = (
        onnxruntime.InferenceSession(directory / f"{name}.onnx") for name in ("encoder", "decoder")
    )
    texts = tf.constant(PROBES)
    codec = TextCodec(translator.tokenizers, translator.model.config.max_length)
    source, labels = (encoded.token_ids.to_tensor() for encoded in codec.encode_pairs(texts, texts))
    names = ["source_mask", "source_keys", "source_values"]
    state = dict(zip(names, encoder.run(names, {"source": source.numpy()})))
    state |= {name: state[f"source_{name}"][:, :, :, :0] for name in ("keys", "values")}
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
