"""Shared fixtures: model directories, trained in seconds on invented sentences."""

import ctypes
import fcntl
import gc
import glob
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import resource
import shutil

import browser
import keras
import numpy as np
import pytest

from keras_transformer.commands.main import main
from keras_transformer.config import Config, TokenizerConfig, TransformerConfig
from keras_transformer.export.publishing import Facts
from keras_transformer.export.servable import export_servable
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.runtime.progress import show_log
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator

# These files need programs that others do without; each says how to run it.
collect_ignore = [
    *([] if importlib.util.find_spec("apache_beam") else ["examples/test_translate_corpus.py"]),
    *([] if glob.glob(".venv-servers-*/installed") else ["export/test_server_versions.py"]),
    *([] if importlib.util.find_spec("keras_hub") else ["interchange/test_keras_hub.py"]),
    *([] if importlib.util.find_spec("torch") else ["interchange/test_pytorch.py"]),
    *([] if importlib.util.find_spec("transformers") else ["pretrained/test_hugging_face.py"]),
    # Not the folder: pytest collects folders that it is given.
    *([] if browser.IS_INSTALLED and browser.AXE.exists() else ["pages/test_accessibility.py"]),
    *([] if browser.IS_INSTALLED else ["pages/test_screenshots.py"]),
    *([] if browser.IS_INSTALLED else ["serving/test_page_in_chromium.py"]),
    *([] if browser.IS_INSTALLED else ["translation/test_attention_page_in_chromium.py"]),
    *([] if shutil.which("pymarian") else ["pretrained/test_marian.py"]),
]

# As in the command: tests read on standard error what is logged.
show_log()

# Collecting garbage after each file is quick if it leaves out the millions of objects of imported
# packages.
gc.freeze()

ROOT = pathlib.Path(__file__).parents[1]
FACTS = Facts(
    "en-de",
    "CC0-1.0",
    ["BLEU = 41.00 (signature), 12 sentences of test.en"],
    "100 updates, with 12 pairs",
)

SUBJECTS = {"Anna": "Anna", "the dog": "der Hund", "my sister": "meine Schwester", "Zoë": "Zoë"}
VERBS = {"sees": "sieht", "buys": "kauft", "paints": "malt", "greets": "grüßt"}
OBJECTS = {"a tree": "einen Baum", "two apples": "zwei Äpfel", "the bridge": "die Brücke"}


@pytest.fixture(scope="module", autouse=True)
def free_memory():
    """Frees the graphs and kernels that the tests of a file leave behind, which would add up to
    gigabytes."""
    yield
    keras.backend.clear_session()
    # Libraries keep hundreds of thousands of objects, which each later collection would visit.
    gc.freeze()
    ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def same_kernels():
    """Undoes what `train` sets for its process: those that later tests start would round otherwise
    than the tests."""
    name = "TF_ENABLE_ONEDNN_OPTS"
    before = os.environ.get(name)
    yield
    os.environ.pop(name, None) if before is None else os.environ.update({name: before})


@pytest.fixture
def limit_file_sizes():
    """Makes writing fail as on a full disk: files, also the log of the tests, cannot grow above a
    size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def sentence_pairs():
    return [
        (f"{subject} {verb} {thing}.", f"{SUBJECTS[subject]} hat {OBJECTS[thing]}, {VERBS[verb]}!")
        for subject in SUBJECTS
        for verb in VERBS
        for thing in OBJECTS
    ]


@pytest.fixture
def text(tmp_path):
    """Writes bytes, a text or its lines to files of the test's folder, and returns their paths."""

    def write(name, content):
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def known_pairs(text):
    """Options with two sentences and the translations that the model has memorized."""
    return {
        "--source": text("known.en", "Anna sees a tree.\nthe dog buys two apples.\n"),
        "--reference": text(
            "known.de", "Anna hat einen Baum, sieht!\nder Hund hat zwei Äpfel, kauft!\n"
        ),
    }


@pytest.fixture
def fails(capsys):
    """Runs a command that must fail, and returns its one line on standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert captured.out == ""
        lines = [
            line
            for line in captured.err.splitlines()
            if not line.startswith(("device: ", "precision: ", "vocabulary: "))
        ]
        assert len(lines) == 1, captured.err
        # A mistake on the command line has another exit code than one in a value, a file or a
        # combination.
        assert stopped.value.code == (2 if lines[0].endswith(" --help)") else 1)
        return lines[0]

    return run


@pytest.fixture(scope="session")
def model_dirs(tmp_path_factory):
    """Both model directories at once, before any test loads one.

    Setting a seed later would take away the SentencePiece models that TensorFlow holds then.
    """

    def make(folder):
        keras.utils.set_random_seed(1)
        make_model_dir(folder / "tiny", "bpe", 328, epochs=120)
        make_model_dir(folder / "wordpiece", "wordpiece", 98, epochs=0)

    folder = made_once("models", make, tmp_path_factory)
    return {name: folder / name for name in ("tiny", "wordpiece")}


@pytest.fixture(scope="session")
def tiny_model_dir(model_dirs):
    """Path of a model directory with a BPE tokenizer; its model has memorized `sentence_pairs`."""
    return model_dirs["tiny"]


@pytest.fixture(scope="module")
def translator(tiny_model_dir):
    return Translator.load(tiny_model_dir)


@pytest.fixture(scope="session")
def wordpiece_model_dir(model_dirs):
    """Path of a model directory with a WordPiece tokenizer; its model has learned nothing."""
    return model_dirs["wordpiece"]


@pytest.fixture(scope="module")
def page():
    """A page in Chromium."""
    with browser.browser() as page:
        yield page


@pytest.fixture(scope="session")
def servable(tiny_model_dir, tmp_path_factory):
    """Path of version 1 of a SavedModel with all signatures, of the model that has memorized
    `sentence_pairs`."""

    def make(folder):
        # A slow test verifies all signatures; many tests compare their answers.
        export_servable(Translator.load(tiny_model_dir), folder, facts=FACTS, verified=False)

    return made_once("servable", make, tmp_path_factory) / "1"


@pytest.fixture(scope="session")
def compiled_servable(tiny_model_dir, tmp_path_factory):
    """Path of version 1 of a SavedModel of the same model, which compiles the search of one short
    text."""

    def make(folder):
        shapes = ["--compile", "--compile-lengths", "16", "--compile-batches", "1"]
        options = ["--signatures", "translate", "score", "--no-verify", *shapes]
        main(["export", "--model-dir", str(tiny_model_dir), "--output", str(folder), *options])

    return made_once("compiled", make, tmp_path_factory) / "1"


def made_once(name, make, tmp_path_factory):
    """A copy of a folder that the first process makes which needs it, for all others, also later,
    of the same code."""
    kept = ROOT / "build" / "tests" / digest_of_code()
    kept.mkdir(parents=True, exist_ok=True)
    with open(kept / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (kept / name).exists():
            making = tmp_path_factory.mktemp(name)
            make(making)
            shutil.copytree(making, kept / f"{name}.copied", dirs_exist_ok=True)
            (kept / f"{name}.copied").rename(kept / name)
    return shutil.copytree(kept / name, tmp_path_factory.mktemp("copies") / name)


def digest_of_code():
    """What stands for all that models are made by."""
    packages = "".join(
        f"{name} {importlib.metadata.version(name)}\n" for name in ("keras", "numpy", "tensorflow")
    )
    digest = hashlib.sha256(packages.encode())
    folders = [ROOT / name for name in ("keras_transformer", "training", "export")]
    for path in [
        pathlib.Path(__file__),
        *sorted(path for folder in folders for path in folder.rglob("*.py")),
    ]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def make_model_dir(path, kind, vocab_size, epochs):
    pairs = sentence_pairs()
    tokenizer = train_tokenizer([text for pair in pairs for text in pair], kind, vocab_size)
    config = TransformerConfig(
        source_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.vocab_size,
        num_layers=1,
        d_model=64,
        d_ff=128,
        num_heads=2,
        dropout=0.0,
        max_length=64,
    )
    model = build_transformer(config, dtype="float32")
    if epochs:
        source, labels = (padded_ids(tokenizer, texts) for texts in zip(*pairs))
        starts = np.full((len(labels), 1), tokenizer.start_id, "int32")
        target = np.concatenate([starts, labels[:, :-1]], axis=1)
        model.compile(keras.optimizers.Adam(3e-3), MaskedLabelSmoothedCrossentropy(0.1))
        # Keras prepares each epoch for longer than so small a model computes: one epoch of many
        # equal batches.
        source, target, labels = (np.tile(rows, (epochs, 1)) for rows in (source, target, labels))
        inputs = {"source": source, "target": target}
        model.fit(inputs, labels, batch_size=len(pairs), shuffle=False, verbose=0)
    path.mkdir()
    tokenizer.save(path / tokenizer.filename)
    model_dir = ModelDir(path)
    model_dir.write_config(Config(config, TokenizerConfig(kind, tokenizer.vocab_size)))
    model.save_weights(model_dir.best_path)
    return path


def padded_ids(tokenizer, texts):
    rows = [[*ids, tokenizer.end_id] for ids in tokenizer.tokenize(list(texts)).to_list()]
    padded = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, ids in zip(padded, rows):
        row[: len(ids)] = ids
    return padded
