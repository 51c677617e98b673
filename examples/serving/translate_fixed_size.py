"""Translates with LiteRT or ONNX Runtime: an encoder, and a step of the decoder, of fixed size, which Keras exports.

    python examples/serving/translate_fixed_size.py models/en-de folder litert 48 < sentences

Tokenizer and search are not in the files. ONNX needs the packages onnxruntime, onnx and tf2onnx.
"""

import functools
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import Translator
from keras_transformer.masks import padding_mask

folder, format, size = pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
translator = Translator.load(sys.argv[1])
model, tokenizers = translator.model, translator.tokenizers


def export(path: pathlib.Path, inputs: list[keras.KerasTensor], outputs: keras.KerasTensor) -> None:
    exported = keras.Model({each.name: each for each in inputs}, outputs)
    # Keras exports to ONNX only what was called before.
    exported({each.name: np.zeros(each.shape, each.dtype) for each in inputs})
    exported.export(path, format=format, verbose=False)


def function_of(path: pathlib.Path):
    if format == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        return lambda **inputs: session.run(None, inputs)[0]
    runner = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda **inputs: next(iter(runner(**inputs).values()))


source, target = (keras.Input(batch_shape=(1, size), dtype="int32", name=name) for name in ("source", "target"))
encoded = keras.Input(batch_shape=(1, size, model.config.d_model), name="encoded")
masks = dict(target_mask=padding_mask(target), source_mask=padding_mask(source))
hidden = model.decoder(model.target_embedding(target), encoded, **masks)
paths = [folder / f"{name}.{'onnx' if format == 'onnx' else 'tflite'}" for name in ("encoder", "decoder")]
export(paths[0], [source], model.encode(source)[0])
export(paths[1], [source, encoded, target], model.output_projection(hidden))
encode, decode = map(function_of, paths)
for line in sys.stdin.read().splitlines():
    source_ids, target_ids = np.zeros((1, size), "int32"), np.zeros((1, size), "int32")
    ids = tokenizers.source.tokenize([line]).to_list()[0][: size - 1]
    source_ids[0, : len(ids) + 1] = [*ids, tokenizers.source.end_id]
    step = functools.partial(decode, source=source_ids, encoded=encode(source=source_ids))
    target_ids[0, 0] = tokenizers.target.start_id
    for position in range(size - 1):
        best = step(target=target_ids)[0, position].argmax()
        if best == tokenizers.target.end_id:
            break
        target_ids[0, position + 1] = best
    print(tokenizers.target.detokenize(target_ids).numpy()[0].decode())
