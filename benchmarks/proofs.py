"""Tests whether the proof of an export refuses healthy models.

    python -m benchmarks.proofs --models build/proofs --rounds 15 --json proofs.json

20 models of 0.2 million parameters are trained for 20 to 200 updates: rounding often decides the
searches of weakly trained models. In each round a graph is
saved with random settings: a signature, the beam, the length penalty, the precision, and in some
with float32 weights the inputs of products rounded to 10 bits in the SavedModel alone, as TF32 does
on a GPU. A process loads it on one core or two, with oneDNN or without. Then `verify` compares it
with the translator, with the weights of each model in turn. With `--compile`, the SavedModels
compile their searches, and the translator does not.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from benchmarks.text import sentence_pairs
from keras_transformer.config import Config, DecodingConfig, TokenizerConfig, TransformerConfig
from keras_transformer.config.values import SignatureName
from keras_transformer.errors import VerificationError
from keras_transformer.export import proof
from keras_transformer.export.servable import Servable
from keras_transformer.export.session_mode import decoded, encoded
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.export.warmup import requests_that_compile
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator
from keras_transformer.translation.compiled_search import SearchShapes

NAMES: list[SignatureName] = [
    "translate",
    "translate_n_best",
    "translate_with_prefix",
    "translate_document",
    "score",
    "align",
    "encode",
]
COMPILABLE: list[SignatureName] = ["translate", "translate_n_best", "translate_document"]
UPDATES = (20, 60, 120, 200)
NUM_SEEDS = 5
SESSION_MODE = pathlib.Path(__file__).parents[1] / "export" / "session_mode.py"
BATCH = 15

# Reads paths of weights with requests, and writes the answers, one line each.
SESSION = """
import json, runpy, sys
import tensorflow as tf
answer = runpy.run_path(sys.argv[2])["answer"]
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], sys.argv[1])
    saver = meta_graph.saver_def
    signatures = meta_graph.signature_def
    for line in sys.stdin:
        weights, requests = json.loads(line)
        session.run(saver.restore_op_name, {saver.filename_tensor_name: weights})
        answers = [answer(session, signatures[name], tensors) for name, tensors in requests]
        print(json.dumps(["CPU", answers]), flush=True)
"""


def train(folder: pathlib.Path, data: str | None) -> None:
    """Trains a model for each seed, and writes a model directory after each number of updates."""
    pairs = sentence_pairs(data, "train", BATCH * UPDATES[-1])
    # A seed that is set later would take away the tokenizer that TensorFlow holds.
    tokenizer = train_tokenizer([*pairs.source, *pairs.target], "bpe", 1000)
    source = _padded(tokenizer, pairs.source)
    labels = _padded(tokenizer, pairs.target)
    target = np.pad(labels[:, :-1], [(0, 0), (1, 0)], constant_values=tokenizer.start_id)
    size = tokenizer.vocab_size
    config = TransformerConfig(
        size, size, num_layers=2, d_model=64, d_ff=128, num_heads=4, dropout=0.0, max_length=128
    )
    for seed in range(NUM_SEEDS):
        order = np.random.default_rng(seed).permutation(len(source))
        model = build_transformer(config, dtype="float32")
        model.compile(keras.optimizers.Adam(2e-3), MaskedLabelSmoothedCrossentropy(0.1))
        for first, last in zip((0, *UPDATES), UPDATES, strict=False):
            rows = order[first * BATCH : last * BATCH]
            inputs = {"source": source[rows], "target": target[rows]}
            model.fit(inputs, labels[rows], batch_size=BATCH, shuffle=False, verbose=0)
            model_dir = ModelDir(folder / f"seed-{seed}-updates-{last}")
            model_dir.path.mkdir()
            tokenizer.save(model_dir.path / tokenizer.filename)
            model_dir.write_config(Config(config, TokenizerConfig("bpe", size)))
            model.save_weights(model_dir.best_path)


def _padded(tokenizer: Any, texts: list[str]) -> np.ndarray:
    ends = tf.fill([len(texts), 1], tokenizer.end_id)
    return tf.concat([tokenizer.tokenize(texts), ends], axis=1).to_tensor().numpy()


@contextlib.contextmanager
def rounded_products() -> Iterator[None]:
    """Rounds the inputs of products in graphs that the block traces to 10 bits after the first."""

    def rounded(value: Any) -> Any:
        value = tf.convert_to_tensor(value)
        if value.dtype != tf.float32:
            return value
        bits = tf.bitcast(value, tf.int32) + (1 << 12)
        return tf.bitcast(tf.bitwise.bitwise_and(bits, tf.constant(-1 << 13)), tf.float32)

    matmul, einsum = tf.matmul, tf.einsum

    def rounded_matmul(a: Any, b: Any, *arguments: Any, **options: Any) -> Any:
        return matmul(rounded(a), rounded(b), *arguments, **options)

    def rounded_einsum(equation: str, *inputs: Any, **options: Any) -> Any:
        return einsum(equation, *map(rounded, inputs), **options)

    with (
        mock.patch.object(tf, "matmul", rounded_matmul),
        mock.patch.object(tf.linalg, "matmul", rounded_matmul),
        mock.patch.object(tf, "einsum", rounded_einsum),
    ):
        yield


def verify_all(
    models: list[pathlib.Path], rng: random.Random, is_compiled: bool
) -> Iterator[dict[str, Any]]:
    """Saves a graph with random settings, and yields whether it is refused, for each model."""
    precision: Any = rng.choice(["float32", "float32", "float32", "bfloat16", "int8-weights"])
    is_tf32 = precision != "bfloat16" and rng.random() < 0.4
    decoding = DecodingConfig(
        beam_size=rng.choice([1, 2, 4, 8]), length_penalty=rng.choice([0.0, 0.6, 1.0])
    )
    name = rng.choice(COMPILABLE if is_compiled else NAMES)
    shapes = None
    if is_compiled:
        shapes = SearchShapes(rng.choice([(16,), (24, 48)]), rng.choice([(1,), (1, 3)]))
    cores = sorted(os.sched_getaffinity(0))[: rng.choice([1, 2])]
    onednn = rng.choice("01")
    settings = {
        "signature": name,
        "beam": decoding.beam_size,
        "length penalty": decoding.length_penalty,
        "precision": precision,
        "TF32": is_tf32,
        "cores": len(cores),
        "oneDNN": onednn,
        "shapes": shapes,
    }
    translator = Translator.load(models[0], decoding, precision)
    exact = Servable(translator, {name: SIGNATURES[name]})
    with rounded_products() if is_tf32 else contextlib.nullcontext():
        servable = Servable(translator, {name: SIGNATURES[name]}, shapes)
    more = {}
    if shapes is not None:
        more = requests_that_compile(translator, shapes, {name: SIGNATURES[name]})
    with tempfile.TemporaryDirectory() as path:
        tf.saved_model.save(servable, path, signatures=servable.functions)
        program = ["taskset", "--cpu-list", ",".join(map(str, cores))]
        program += [sys.executable, "-c", SESSION, path, str(SESSION_MODE)]
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn}
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with subprocess.Popen(program, text=True, env=environment, **pipes) as process:

            def run(path: pathlib.Path, questions: Any, python: str) -> Any:
                texts = [
                    (name, {key: encoded(tensor) for key, tensor in inputs.items()})
                    for name, inputs in questions
                ]
                print(json.dumps([str(path), texts]), file=process.stdin, flush=True)
                device, answers = json.loads(process.stdout.readline())
                return device, [
                    {key: decoded(tensor) for key, tensor in answer.items()} for answer in answers
                ]

            for model in models:
                graph = Translator.load(model, decoding, precision).graph
                with graph.untied_output():
                    weights = zip(exact.weights, servable.weights, graph.weights, strict=True)
                    for exact_variable, saved_variable, values in weights:
                        exact_variable.assign(values)
                        saved_variable.assign(values)
                saved = pathlib.Path(tf.train.Checkpoint(servable).write(f"{path}/{model.name}"))
                # As in an export, a compiled search in bfloat16 is compared with itself.
                is_exact = not (is_compiled and precision == "bfloat16")
                functions = (exact if is_exact else servable).functions
                outcome = _verify(saved, functions, precision, run, is_tf32, more)
                yield {"model": model.name, **settings, **outcome}


def _verify(
    path: pathlib.Path, functions: Any, precision: str, run: Any, is_tf32: bool, more: Any
) -> dict[str, Any]:
    with (
        mock.patch.object(proof, "_run_session", run),
        mock.patch.object(proof, "_FLOAT32", proof._TF32 if is_tf32 else proof._FLOAT32),
        mock.patch.object(proof._log, "info") as log,
    ):
        try:
            proof.verify(path, functions, precision=precision, more=more)
        except VerificationError as error:
            return {"refused": str(error)}
    (number,) = re.findall(r"; ([\d,]+) values? differed", log.call_args.args[0])
    return {"decided by rounding": int(number.replace(",", ""))}


def main() -> None:
    """Runs the experiment from the command line."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="benchmarks.proofs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--data", metavar="DIR", help="directory of Multi30k (default: generated text)"
    )
    parser.add_argument(
        "--models",
        type=pathlib.Path,
        metavar="DIR",
        required=True,
        help="where the models are, or go",
    )
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the settings")
    parser.add_argument("--compile", action="store_true", help="compile the searches")
    parser.add_argument(
        "--json", metavar="FILE", help="a line with the settings and the outcome of each SavedModel"
    )
    options = parser.parse_args()
    rng = random.Random(options.seed)
    counts = collections.Counter[str]()
    if not options.models.exists():
        options.models.mkdir(parents=True)
        train(options.models, options.data)
    models = sorted(options.models.iterdir())
    for _ in range(options.rounds):
        for outcome in verify_all(models, rng, options.compile):
            counts.update({"SavedModels": 1, "refused": "refused" in outcome})
            counts["decided by rounding"] += outcome.get("decided by rounding", 0) > 0
            print(json.dumps(outcome), dict(counts), flush=True)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main()
