"""Translates with LiteRT or ONNX Runtime, with what `keras-transformer export --format litert` or `onnx` wrote.

    python examples/serving/translate_fixed_size.py litert/en-de/1 < sentences

Needs NumPy, SentencePiece, and the runtime. The search is greedy.
"""

import pathlib
import sys

import numpy as np
import sentencepiece

START, END = 2, 3
folder = pathlib.Path(sys.argv[1])


def load(name: str):
    """Returns a function that takes inputs by name, and the length of "source"."""
    if (path := folder / f"{name}.onnx").exists():
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        shapes = {each.name: each.shape for each in session.get_inputs()}
        return lambda **inputs: session.run(None, inputs)[0], shapes["source"][1]
    import tensorflow as tf

    # The package ai_edge_litert has the same class, without the rest of TensorFlow.
    runner = tf.lite.Interpreter(str(folder / f"{name}.tflite")).get_signature_runner()
    return lambda **inputs: next(iter(runner(**inputs).values())), runner.get_input_details()["source"]["shape"][1]


def tokenizer_of(side: str) -> sentencepiece.SentencePieceProcessor:
    shared, own = folder / "tokenizer.model", folder / f"{side}.tokenizer.model"
    return sentencepiece.SentencePieceProcessor(model_file=str(own if own.exists() else shared))


(encode, length), (decode, _) = load("encoder"), load("decoder")
source_tokenizer, target_tokenizer = tokenizer_of("source"), tokenizer_of("target")
for line in sys.stdin.read().splitlines():
    source, target = np.zeros((1, length), "int32"), np.zeros((1, length), "int32")
    # The tokenizer was learned from lines that begin with a space.
    ids = source_tokenizer.encode(f" {line}")[: length - 1]
    source[0, : len(ids) + 1] = [*ids, END]
    encoded = encode(source=source)
    translation: list[int] = []
    for position in range(length if line.strip() else 0):
        target[0, position] = translation[-1] if translation else START
        logits = decode(source=source, encoded=encoded, target=target, position=np.array([position], "int32"))
        best = int(logits[0].argmax())
        if best == END:
            break
        translation.append(best)
    print(target_tokenizer.decode(translation).removeprefix(" "))
