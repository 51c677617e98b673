"""Tests whether the proof of an export accepts healthy models.

    python -m benchmarks.proofs --models build/proofs --rounds 30 --json proofs.json

20 models of 0.2 million parameters are trained for 20 to 200 updates: weakly trained models decide
many searches by small differences. In each round a graph is saved with random settings: a
signature, the beam, the length penalty, the precision, compiled searches or plain ones, and in some
with float32 weights the inputs of products rounded to 10 bits in the SavedModel alone, as TF32 does
on a GPU. A process loads it on one core or two, with oneDNN or without. Then the proof compares it
with the translator, with the weights of ten models in turn, each of which counts as an export.

Each outcome is a line of the file. If the benchmark is interrupted, run it again: it continues with
the first export that the file does not contain.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import keras
import numpy as np
import tabulate
import tensorflow as tf

from benchmarks.text import sentence_pairs
from keras_transformer.config import Config, DecodingConfig, TokenizerConfig, TransformerConfig
from keras_transformer.config.values import SignatureName
from keras_transformer.errors import VerificationError
from keras_transformer.export import proof
from keras_transformer.export.servable import Servable, edit_signatures
from keras_transformer.export.session_mode import decoded, encoded
from keras_transformer.export.signatures import (
    HIDDEN_MARGINS,
    HIDDEN_TOKENS,
    SIGNATURES,
    Signature,
)
from keras_transformer.export.warmup import requests_that_compile
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator
from keras_transformer.translation.graph import TranslationGraph
from keras_transformer.translation.shapes import SearchShapes

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
MODELS_PER_ROUND = 10

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
        print(json.dumps(answers), flush=True)
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


def run_round(models: list[pathlib.Path], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Saves a graph with random settings, and yields the outcome of the proof for each model."""
    is_compiled = rng.random() < 0.4
    name = rng.choice(COMPILABLE if is_compiled else NAMES)
    precision: Any = rng.choice(["float32", "float32", "float32", "bfloat16", "int8-weights"])
    is_tf32 = precision != "bfloat16" and rng.random() < 0.3
    decoding = DecodingConfig(
        beam_size=rng.choice([1, 2, 4, 8]), length_penalty=rng.choice([0.0, 0.6, 1.0])
    )
    shapes = None
    if is_compiled:
        shapes = SearchShapes(rng.choice([(16,), (24, 48)]), rng.choice([(1,), (1, 3)]))
    num_cores = rng.choice([1, 2])
    onednn = rng.choice("01")
    settings = {
        "signature": name,
        "beam": decoding.beam_size,
        "length penalty": decoding.length_penalty,
        "precision": f"{precision}, TF32" if is_tf32 else precision,
        "compiled": shapes,
        "cores": num_cores,
        "oneDNN": onednn,
    }
    signature = SIGNATURES[name]
    translator = Translator.load(models[0], decoding, precision)
    requests = [signature.request(proof.TEXTS)]
    if shapes is not None:
        requests += requests_that_compile(translator, shapes, {name: signature})[name]
    with rounded_products() if is_tf32 else contextlib.nullcontext():
        servable = Servable(translator, {name: signature}, shapes)
    reference = translator.graph.with_margins()
    tolerance = proof.TF32 if is_tf32 else proof.tolerance_of(precision, ["CPU"])
    with session(servable, name, num_cores, onednn) as (path, ask):
        for model in models:
            other = Translator.load(model, decoding, precision).graph
            assign(translator.graph.weights, other.weights)
            assign(servable.weights, other.for_serving().weights)
            weights = tf.train.Checkpoint(servable).write(f"{path}/{model.name}")
            answers = ask(weights, requests)
            outcome = compare(reference, signature, requests, answers, tolerance)
            yield {"model": model.name, **settings, **outcome}


def assign(variables: Sequence[tf.Variable], values: Sequence[tf.Variable]) -> None:
    """Assigns the values of other variables."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


@contextlib.contextmanager
def session(
    servable: Servable, name: SignatureName, num_cores: int, onednn: str
) -> Iterator[tuple[str, Callable[..., list[proof.Outputs]]]]:
    """Saves a graph, and loads it in a process.

    Yields a tuple of the path, and a function that returns the answers to requests, given the path
    of a checkpoint.
    """
    with tempfile.TemporaryDirectory() as path:
        tf.saved_model.save(servable, path, signatures=servable.functions)
        edit_signatures(pathlib.Path(path, "saved_model.pb"), {name: SIGNATURES[name]})
        cores = sorted(os.sched_getaffinity(0))[:num_cores]
        program = ["taskset", "--cpu-list", ",".join(map(str, cores))]
        program += [sys.executable, "-c", SESSION, path, str(SESSION_MODE)]
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn}
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with subprocess.Popen(program, text=True, env=environment, **pipes) as process:

            def ask(weights: str, requests: Sequence[proof.Inputs]) -> list[proof.Outputs]:
                questions = [
                    (name, {key: encoded(tensor) for key, tensor in inputs.items()})
                    for inputs in requests
                ]
                print(json.dumps([weights, questions]), file=process.stdin, flush=True)
                answers = json.loads(process.stdout.readline())
                return [
                    {key: decoded(tensor) for key, tensor in answer.items()} for answer in answers
                ]

            yield path, ask


def compare(
    reference: TranslationGraph,
    signature: Signature,
    requests: Sequence[proof.Inputs],
    answers: Sequence[proof.Outputs],
    tolerance: float,
) -> dict[str, Any]:
    """Returns the outcome of the proof, and the numbers that its limits rest on.

    Numbers of texts, of undecided texts, and of texts for which other tokens were found; the
    largest margin of the latter; and the largest difference between two numbers, relative to
    numbers above 1.
    """
    outcome: dict[str, Any] = dict(texts=0, undecided=0, other=0, margin=0.0, difference=0.0)
    for inputs, answer in zip(requests, answers, strict=True):
        try:
            proof.check_answer(reference, signature, inputs, answer, tolerance)
        except VerificationError as error:
            outcome["refused"] = str(error)
        expected = proof.compute(reference, signature, inputs)
        if HIDDEN_TOKENS in answer:
            margins = expected[HIDDEN_MARGINS]
            is_other = (answer[HIDDEN_TOKENS] != expected[HIDDEN_TOKENS]).any(axis=(1, 2))
            outcome["texts"] += margins.size
            outcome["undecided"] += int(np.count_nonzero(~proof.decides(margins, tolerance)))
            outcome["other"] += int(np.count_nonzero(is_other))
            outcome["margin"] = max(outcome["margin"], float(margins[is_other].max(initial=0.0)))
            expected = proof.compute(reference, signature, inputs, answer)
        for key, values in expected.items():
            if values.dtype.kind == "f":
                is_finite = np.isfinite(values) & np.isfinite(answer[key])
                values, received = values[is_finite], answer[key][is_finite]
                difference = np.abs(values - received) / np.maximum(1, np.abs(values))
                outcome["difference"] = max(outcome["difference"], float(difference.max(initial=0)))
    return outcome


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
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="of ten exports each")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the settings")
    parser.add_argument(
        "--json",
        type=pathlib.Path,
        metavar="FILE",
        required=True,
        help="a line with the settings and the outcome of each export",
    )
    options = parser.parse_args()
    if not options.models.exists():
        options.models.mkdir(parents=True)
        train(options.models, options.data)
    models = sorted(options.models.iterdir())
    lines = options.json.read_text().splitlines() if options.json.exists() else []
    outcomes = [json.loads(line) for line in lines]
    done = {(outcome["seed"], outcome["round"], outcome["model"]) for outcome in outcomes}
    for number in range(options.rounds):
        rng = random.Random(f"{options.seed} {number}")
        chosen = [
            model
            for model in rng.sample(models, MODELS_PER_ROUND)
            if (options.seed, number, model.name) not in done
        ]
        for outcome in run_round(chosen, rng) if chosen else ():
            outcome = {"seed": options.seed, "round": number, **outcome}
            outcomes.append(outcome)
            print(json.dumps(outcome), flush=True)
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(outcome) + "\n")
    report(outcomes)


def report(outcomes: Sequence[dict[str, Any]]) -> None:
    """Prints the sums and maxima of the outcomes of each precision."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for outcome in outcomes:
        kind = outcome["precision"] + (", compiled" if outcome["compiled"] else "")
        groups.setdefault(kind, []).append(outcome)
    rows = []
    for kind, group in sorted(groups.items()):
        refused = sum("refused" in outcome for outcome in group)
        sums = [sum(outcome[key] for outcome in group) for key in ("texts", "undecided", "other")]
        maxima = [max(outcome[key] for outcome in group) for key in ("margin", "difference")]
        rows.append([kind, len(group), refused, *sums, *(f"{value:.2g}" for value in maxima)])
    headers = ["", "exports", "refused", "texts", "undecided", "other", "margin", "difference"]
    print(tabulate.tabulate(rows, headers))


if __name__ == "__main__":
    main()
