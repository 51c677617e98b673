"""Training from end to end: devices agree, batches in parts are whole batches, checkpoints contain
what they should."""

import csv
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from fresh_process import run_python
from training_runs import write_text

from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.errors import ConfigError
from keras_transformer.export.servable import export_servable
from keras_transformer.losses import token_crossentropy
from keras_transformer.model_dir import ModelDir
from keras_transformer.runtime.device import divide_cores
from keras_transformer.tokenizers import load_tokenizers
from keras_transformer.training.evaluate import evaluate
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run import trainer
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.state import average_checkpoints
from keras_transformer.training.run.trainer import train
from keras_transformer.training.step import model as step_model
from keras_transformer.training.step.model import build_training_step
from keras_transformer.training.step.optimizer import learning_rate
from keras_transformer.training.text.corpus import SentencePairs
from keras_transformer.translation.attention import translate_with_attention

PAIRS = generate(400, seed=3)
ROOT = pathlib.Path(__file__).resolve().parents[3]
TINY = [
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_heads=2",
    "model.num_layers=1",
    "tokenizer.vocab_size=500",
    "training.tokens_per_batch=500",
    "training.num_buckets=3",
    "training.precision=float32",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files") / "text"
    write_text(directory)
    return directory


def command(files, model_dir, *overrides, devices=None):
    sets = [part for override in (*TINY, *overrides) for part in ("--set", override)]
    return [
        *(sys.executable, "-m", "keras_transformer", "train", "--config", "demo"),
        *("--source", files / "train.en", "--target", files / "train.de"),
        *("--valid-source", files / "valid.en", "--valid-target", files / "valid.de"),
        *("--model-dir", model_dir, *sets),
        *(("--devices", str(devices)) if devices else ()),
    ]


def pairs(begin, end):
    return SentencePairs(*map(list, zip(*PAIRS[begin:end])), name=f"{begin} to {end}")


def train_here(model_dir, *overrides, text=None, init_from=None, **options):
    config = load_recipe("demo", [*TINY, *overrides], init_from)
    # As the command does.
    keras.utils.set_random_seed(config.training.seed)
    text = text or pairs(0, 360)
    train(config, text, pairs(360, 400), model_dir, make_strategy(), init_from=init_from, **options)
    return ModelDir(model_dir)


def load_model(model_dir):
    return model_dir.load_model(model_dir.read_config().model)


def logged(model_dir, column):
    with open(model_dir.log_path, newline="") as file:
        return [float(row[column]) for row in csv.DictReader(file)]


def weights_of(model, path):
    model.load_weights(path)
    return [weight.copy() for weight in model.get_weights()]


def assert_average_of(model_dir, paths):
    model = load_model(model_dir)
    average = weights_of(model, model_dir.weights_path())
    for weight, *others in zip(average, *(weights_of(model, path) for path in paths), strict=True):
        np.testing.assert_allclose(weight, np.mean(others, axis=0), rtol=0, atol=1e-7)


CLIPPED = (
    *("training.steps=6", "training.validate_every=2", "model.dropout=0.0"),
    *("training.clip_norm=0.5", "training.average_last=0"),
    *("training.warmup_steps=2", "training.peak_learning_rate=0.02"),
)


def test_two_devices_train_to_the_losses_of_one(files, tmp_path, capsys):
    # TensorFlow divides the CPU into two devices before it does anything else.
    arguments = command(files, tmp_path / "two", *CLIPPED, devices=2)
    result = subprocess.run(arguments, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "2 devices" in result.stderr
    assert result.stdout == ""
    one = logged(train_here(tmp_path / "one", *CLIPPED), "loss")
    assert "1 device;" in capsys.readouterr().err
    two = logged(ModelDir(tmp_path / "two"), "loss")
    assert len(one) == len(two) == 3
    np.testing.assert_allclose(two, one, rtol=1e-4)
    assert one[-1] < one[0]


def test_the_paper_recipes_have_the_sizes_of_table_3():
    base, big = (load_recipe(f"wmt14-en-de-{name}") for name in ("base", "big"))
    sizes = ("num_layers", "d_model", "d_ff", "num_heads", "dropout")
    assert [getattr(base.model, size) for size in sizes] == [6, 512, 2048, 8, 0.1]
    assert [getattr(big.model, size) for size in sizes] == [6, 1024, 4096, 16, 0.3]
    assert (base.training.steps, big.training.steps) == (100_000, 300_000)
    assert (base.training.average_last, big.training.average_last) == (5, 20)


def test_text_that_cannot_be_trained_on_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="none of the 360 sentence pairs can be used"):
        train_here(tmp_path / "model", "model.max_length=2")
    assert not (tmp_path / "model").exists()


TEN_STEPS = (
    *(
        "training.steps=10",
        "training.validate_every=2",
        "training.keep_checkpoints=3",
        "training.average_last=2",
    ),
)


@pytest.fixture(scope="module")
def traces_and_trained(tmp_path_factory):
    """How often the training step was traced, and the model directory."""
    models = []
    with pytest.MonkeyPatch.context() as patch:
        build = lambda *arguments: models.append(build_training_step(*arguments)) or models[-1]
        patch.setattr(trainer, "build_training_step", build)
        trained = train_here(tmp_path_factory.mktemp("trained") / "model", *TEN_STEPS)
    return [model._update.experimental_get_tracing_count() for model in models], trained


@pytest.fixture(scope="module")
def trained(traces_and_trained):
    return traces_and_trained[1]


# Where every batch has its loss, few batches are enough; the rows of each are at most six.
IN_PARTS = (
    *(
        "training.steps=3",
        "training.validate_every=1",
        "training.average_last=0",
        "training.tokens_per_batch=160",
    ),
    *("training.clip_norm=0.5", "model.dropout=0.0", "training.consistency=3"),
)


@pytest.fixture(scope="module")
def trained_on_whole_batches(tmp_path_factory):
    return train_here(tmp_path_factory.mktemp("whole") / "model", *IN_PARTS)


# Eight are more than a batch has rows.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("accumulate_steps", "parallel_parts"),
    [
        (4, 2),
        *(
            pytest.param(*parts, marks=pytest.mark.slow)
            for parts in ((2, 2), (1, 7), (3, 1), (1, 3))
        ),
    ],
)
def test_a_batch_in_parts_trains_to_the_losses_of_a_whole_one(
    trained_on_whole_batches, tmp_path, accumulate_steps, parallel_parts
):
    overrides = (*IN_PARTS, f"training.accumulate_steps={accumulate_steps}")
    trained = train_here(tmp_path / "model", *overrides, parallel_parts=parallel_parts)
    for column in ("loss", "val_loss", "val_perplexity"):
        np.testing.assert_allclose(
            logged(trained, column), logged(trained_on_whole_batches, column), rtol=1e-5
        )
    accuracies = [
        logged(model_dir, "val_accuracy") for model_dir in (trained, trained_on_whole_batches)
    ]
    # Where two tokens are almost equally probable, rounding decides which one is predicted: one of
    # the 1470.
    np.testing.assert_allclose(*accuracies, rtol=0, atol=1e-3)


@pytest.mark.slow
def test_cores_are_divided_among_the_parts_of_a_batch():
    code = (
        "import os; os.sched_getaffinity = lambda process: set(range(8))\n"
        "from keras_transformer.runtime.device import divide_cores\n"
        "import tensorflow as tf\n"
        "threading = tf.config.threading\n"
        "for most_parts in (1, 4, 100):\n"
        "    print(divide_cores(most_parts), threading.get_inter_op_parallelism_threads(),"
        " threading.get_intra_op_parallelism_threads())"
    )
    # The first is TensorFlow's own way: all cores for every operation.
    assert run_python("-c", code).splitlines() == ["1 0 0", "4 4 2", "8 8 1"]


def test_only_the_cores_that_the_process_may_use_count():
    # Those of this thread, which are given back.
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert divide_cores(4) == 1
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.slow
def test_a_host_programs_threads_do_not_change_how_batches_are_divided(tmp_path):
    code = (
        "import sys, tensorflow as tf\n"
        "tf.config.threading.set_inter_op_parallelism_threads(3)\n"
        "sys.path[:0] = ['tests', 'tests/training/run']\n"
        "import test_training\n"
        "from keras_transformer.training.run import trainer\n"
        # Enough is known when the model is about to be built.
        "trainer.build_training_step = lambda *arguments: sys.exit(print(arguments[3]))\n"
        "test_training.train_here(sys.argv[1])"
    )
    assert run_python("-c", code, tmp_path / "model", cwd=ROOT) == "1\n"


@pytest.mark.slow
def test_training_leaves_the_tokenizers_of_a_host_program_alone(
    tiny_model_dir, tmp_path, monkeypatch
):
    translator = Translator.load(tiny_model_dir)
    before = translator.tokenize(["Anna sees a tree."])
    # The steps themselves have to do with token ids only.
    monkeypatch.setattr(trainer, "run_loop", lambda *arguments: None)
    config = load_recipe("demo", [*TINY, "training.steps=1", "training.average_last=0"])
    train(config, pairs(0, 360), pairs(360, 400), tmp_path / "model", make_strategy())
    assert translator.tokenize(["Anna sees a tree."]) == before


@pytest.mark.slow
def test_the_model_is_built_once_when_its_vocabulary_is_known(tmp_path, monkeypatch, capsys):
    sizes, build = [], step_model.build_transformer

    def record(config, **options):
        sizes.append((config.source_vocab_size, config.target_vocab_size))
        return build(config, **options)

    monkeypatch.setattr(step_model, "build_transformer", record)
    # As WordPiece does, which stops within 5% below the size that is asked for.
    monkeypatch.setattr(trainer, "run_loop", lambda *arguments: None)
    learn = trainer.learn_tokenizers
    smaller = lambda pairs, config, *others: learn(
        pairs, dataclasses.replace(config, vocab_size=490), *others
    )
    monkeypatch.setattr(trainer, "learn_tokenizers", smaller)
    model_dir = train_here(tmp_path / "model", "training.steps=1", "training.average_last=0")
    assert sizes == [(490, 490)]
    assert model_dir.read_config().model.target_vocab_size == 490
    assert "with batches of 3 shapes" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dropout_that_rounds_to_1_trains_what_comes_after_it(tmp_path):
    # 16 random bits drop everything, so that the encoder has no gradient.
    model_dir = train_here(
        tmp_path / "model",
        *(
            "model.dropout=0.9999999999",
            "training.steps=4",
            "training.validate_every=2",
            "training.average_last=0",
        ),
        *("training.warmup_steps=1", "model.logits_bias=true"),
    )
    assert np.isfinite([logged(model_dir, name) for name in ("loss", "val_loss")]).all()
    model = load_model(model_dir)
    assert np.all(model.output_projection.bias.numpy() != 0)


def test_one_program_trains_on_all_shapes_and_is_made_once(traces_and_trained):
    traces, trained = traces_and_trained
    assert traces == [1] and trained.read_config().training.num_buckets == 3


@pytest.mark.slow
def test_biases_and_two_depths_are_trained_saved_and_used(tmp_path):
    model_dir = train_here(
        tmp_path / "biases",
        *("model.attention_bias=true", "model.logits_bias=true", "model.num_encoder_layers=2"),
        *(
            "training.steps=12",
            "training.validate_every=4",
            "training.average_last=0",
            "training.warmup_steps=4",
        ),
    )
    losses = logged(model_dir, "loss")
    assert losses[-1] < losses[0]
    model = load_model(model_dir)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, 1)
    # The tokens of the text have become more probable than those that do not occur in it.
    bias = model.output_projection.bias.numpy()
    tokenizer = load_tokenizers(model_dir.path, model_dir.read_config().tokenizer, "none").source
    assert bias[tokenizer.end_id] > bias[tokenizer.pad_id]
    assert np.all(model.decoder.layers[0].cross_attention.value_dense.bias.numpy() != 0)
    # What was validated is what is loaded.
    text = pairs(360, 400)
    translator = Translator.load(model_dir)
    num_tokens = sum(len(row) + 1 for row in tokenizer.tokenize(list(text.target)).to_list())
    perplexity = np.exp(-translator.score(list(text.source), list(text.target)).sum() / num_tokens)
    assert perplexity == pytest.approx(min(logged(model_dir, "val_perplexity")), rel=1e-4)


TWO_VOCABULARIES = (
    *(
        "tokenizer.shared=false",
        "tokenizer.vocab_size=330",
        "model.tie_embeddings=target",
        "decoding.beam_size=1",
    ),
    *("training.subword_dropout=0.1", "training.subword_samples=2"),
    *("training.steps=6", "training.validate_by=bleu", "training.average_last=0"),
)


@pytest.fixture(scope="module")
def two_vocabularies(tmp_path_factory):
    return train_here(
        tmp_path_factory.mktemp("vocabularies") / "two",
        *TWO_VOCABULARIES,
        "training.validate_every=3",
    )


@pytest.mark.slow
def test_each_language_may_have_a_vocabulary_of_its_own(two_vocabularies, tmp_path, monkeypatch):
    model_dir = two_vocabularies
    names = {
        f"{side}.tokenizer.model{suffix}"
        for side in ("source", "target")
        for suffix in ("", ".sha256")
    }
    assert {path.name for path in model_dir.path.glob("*tokenizer*")} == names
    config = model_dir.read_config()
    english, german = load_tokenizers(model_dir.path, config.tokenizer, "nfc")
    assert (config.model.source_vocab_size, config.model.target_vocab_size) == (
        english.vocab_size,
        german.vocab_size,
    )
    # Each knows its own language best.
    texts = {english: [source for source, _ in PAIRS], german: [target for _, target in PAIRS]}
    for own, other in ((english, german), (german, english)):
        own_tokens, other_tokens = (
            tokenizer.tokenize(texts[own]).flat_values.shape[0] for tokenizer in (own, other)
        )
        assert own_tokens < other_tokens
    # Resumed, nothing is learned anew.
    before = {name: (model_dir.path / name).read_bytes() for name in names}
    copy, runs = ModelDir(shutil.copytree(model_dir.path, tmp_path / "copy")), []
    monkeypatch.setattr(trainer, "run_loop", lambda run, *arguments: runs.append(run))
    train_here(copy.path, *TWO_VOCABULARIES, "training.steps=8", "training.validate_every=2")
    assert [run.state.step for run in runs] == [6]
    assert before == {name: (copy.path / name).read_bytes() for name in names}


@pytest.mark.slow
def test_two_vocabularies_translate_score_and_are_exported(two_vocabularies, tmp_path):
    translator = Translator.load(two_vocabularies)
    english, german = translator.tokenizers
    source, target = PAIRS[0]
    assert translator.num_tokens([source]) == len(english.tokenize([source])[0]) + 1
    assert translator.num_tokens([source], "target") == len(german.tokenize([source])[0]) + 1
    source_ids = np.array([[*english.tokenize([source])[0], 3]])
    labels = np.array([[*german.tokenize([target])[0], 3]])
    logits = translator.model(
        {"source": source_ids, "target": np.insert(labels, 0, 2, axis=1)[:, :-1]}
    )
    expected = -token_crossentropy(labels, logits).numpy().sum()
    assert translator.score([source], [target])[0] == pytest.approx(expected, rel=1e-4)
    translations = tf.function(translator.graph.search, autograph=False)(tf.constant([source]))
    ids = [[token_id for token_id in translations.token_ids.numpy()[0, 0] if token_id > 3]]
    assert translator([source]) == [
        german.detokenize(tf.ragged.constant(ids, tf.int32)).numpy()[0].decode()
    ]
    # The SavedModel translates as the translator does, or it would not be there.
    assert export_servable(translator, tmp_path, signatures=["serving_default"]).is_dir()
    _, target_pieces, source_pieces = translate_with_attention(translator, source).by_kind["cross"]
    assert source_pieces == [*english.pieces(source_ids[0])]
    assert target_pieces == german.pieces(
        [id for id in translations.token_ids.numpy()[0, 0] if id != 0]
    )


@pytest.mark.slow
def test_workers_get_both_vocabularies_of_the_chief(two_vocabularies, tmp_path):
    contents = []
    chief = types.SimpleNamespace(
        is_chief=True, from_chief=lambda content: contents.append(content) or content
    )
    other = types.SimpleNamespace(is_chief=False, from_chief=lambda content: contents.pop(0))
    config = two_vocabularies.read_config()
    sent = trainer.load_or_learn_tokenizers(
        config, pairs(0, 360), two_vocabularies, None, chief, None
    )
    received = trainer.load_or_learn_tokenizers(config, pairs(0, 360), None, None, other, tmp_path)
    assert [tokenizer.file_content for tokenizer in received] == [
        tokenizer.file_content for tokenizer in sent
    ]


@pytest.mark.slow
def test_a_trained_model_keeps_its_vocabularies(two_vocabularies):
    with pytest.raises(
        ConfigError, match="tokenizer.shared must be False, as in the model that .* holds; received"
    ):
        train_here(two_vocabularies.path, "tokenizer.vocab_size=330", "model.tie_embeddings=target")


@pytest.mark.slow
def test_two_passes_differ_by_their_dropout_alone():
    source, target, labels = np.random.default_rng(0).integers(4, 500, (3, 6, 9)).astype("int32")

    def loss_and_gradients(dropout, consistency):
        config = load_recipe(
            "demo", [*TINY, f"model.dropout={dropout}", f"training.consistency={consistency}"]
        )
        keras.utils.set_random_seed(1)
        model = build_training_step(config.model, config.training, make_strategy())
        total, gradients = model._loss_of_part(0, {"source": source, "target": target}, labels)
        return total / labels.size, gradients

    loss, gradients = loss_and_gradients(0.0, 0.0)
    same_loss, same_gradients = loss_and_gradients(0.0, 5.0)
    np.testing.assert_allclose(same_loss, loss, rtol=1e-5)
    for one, other in zip(same_gradients, gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert loss_and_gradients(0.3, 5.0)[0] > loss + 0.1


@pytest.mark.slow
def test_gradients_of_a_larger_norm_are_scaled_to_it():
    source, target, labels = np.random.default_rng(0).integers(4, 500, (3, 6, 9)).astype("int32")

    def moments(clip_norm):
        config = load_recipe(
            "demo", [*TINY, "model.dropout=0.0", f"training.clip_norm={clip_norm}"]
        )
        keras.utils.set_random_seed(1)
        model = build_training_step(config.model, config.training, make_strategy())
        model.update(
            iter(tf.data.Dataset.from_tensors(({"source": source, "target": target}, labels)))
        )
        # After the first update they are the gradients times 0.1.
        return [moment.numpy() for moment in model.optimizer.momentums]

    unclipped, clipped = moments("null"), moments(0.01)
    norm = np.sqrt(sum(np.sum(moment**2) for moment in unclipped)) / 0.1
    assert norm > 0.1
    for one, other in zip(clipped, unclipped, strict=True):
        np.testing.assert_allclose(one, other * 0.01 / norm, rtol=1e-4, atol=1e-8)
    for one, other in zip(moments(2 * norm), unclipped, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


@pytest.fixture(scope="module")
def ranked_by_bleu(tmp_path_factory):
    return train_here(
        tmp_path_factory.mktemp("ranked") / "model",
        *("training.steps=40", "training.validate_every=10", "training.keep_checkpoints=1"),
        *("training.validate_by=bleu", "training.average_last=0", "training.average_best=2"),
        *("training.patience=3", "training.warmup_steps=5", "training.peak_learning_rate=0.01"),
    )


@pytest.mark.slow
def test_the_best_checkpoints_stay_and_are_averaged(ranked_by_bleu):
    # No translation has a 4-gram of its reference, so perplexity ranks the checkpoints.
    perplexity = dict(zip(logged(ranked_by_bleu, "step"), logged(ranked_by_bleu, "val_perplexity")))
    best = sorted(perplexity, key=perplexity.get)[:2]
    assert list(ranked_by_bleu.checkpoints()) == sorted({*best, max(perplexity)})
    paths = average_checkpoints(ranked_by_bleu, best=2)
    assert paths == [ranked_by_bleu.checkpoint_path(int(step)) for step in best]
    assert_average_of(ranked_by_bleu, paths)


@pytest.mark.slow
def test_the_logged_bleu_is_that_of_the_greedy_translations(ranked_by_bleu):
    decoding = dataclasses.replace(ranked_by_bleu.read_config().decoding, beam_size=1)
    translator = Translator.load(ranked_by_bleu.path, decoding)
    for step, path in ranked_by_bleu.checkpoints().items():
        translator.model.load_weights(path)
        row = logged(ranked_by_bleu, "step").index(step)
        expected = evaluate(translator, pairs(360, 400)).bleu.score
        assert logged(ranked_by_bleu, "val_bleu")[row] == pytest.approx(expected)


@pytest.mark.slow
def test_training_stops_after_patience_validations_without_a_new_best(tmp_path, capsys):
    overrides = (
        *("training.steps=40", "training.validate_every=2", "training.average_last=0"),
        # So high a rate that nothing gets better for long.
        *("training.patience=2", "training.warmup_steps=1", "training.peak_learning_rate=3.0"),
    )
    model_dir = train_here(tmp_path / "model", *overrides)
    perplexities = logged(model_dir, "val_perplexity")
    best = int(np.argmin(perplexities))
    assert len(perplexities) == best + 1 + 2 < 20
    assert "2 validations without a new best" in capsys.readouterr().err
    before = model_dir.training_state_path.read_bytes()
    train_here(tmp_path / "model", *overrides)
    assert "training has already ended" in capsys.readouterr().err
    assert model_dir.training_state_path.read_bytes() == before


def test_the_peak_learning_rate_is_reached_when_the_warmup_ends():
    changes = [
        "training.peak_learning_rate=0.004",
        "training.warmup_steps=20",
        "training.decay=inverse_sqrt",
    ]
    schedule = learning_rate(128, load_recipe("demo", changes).training)
    rates = [float(schedule(step)) for step in range(100)]
    assert max(rates) == pytest.approx(0.004) and int(np.argmax(rates)) == 19
    assert rates[79] == pytest.approx(0.004 * (20 / 80) ** 0.5)
    cosine = learning_rate(
        128, load_recipe("demo", [*changes, "training.decay=cosine", "training.steps=100"]).training
    )
    rates = [float(cosine(step)) for step in range(101)]
    assert max(rates) == pytest.approx(0.004) and int(np.argmax(rates)) == 20
    assert rates[10] == pytest.approx(0.002) and rates[60] == pytest.approx(0.002)
    assert rates[100] == pytest.approx(0.0, abs=1e-9)
    constant = learning_rate(
        128, load_recipe("demo", [*changes, "training.decay=constant"]).training
    )
    assert [float(constant(step)) for step in (20, 50, 99)] == pytest.approx([0.004] * 3)
    paper = learning_rate(512, load_recipe("wmt14-en-de-base").training)
    assert float(paper(3999)) == pytest.approx(512**-0.5 * 4000**-0.5)


@pytest.mark.slow
def test_a_cosine_that_is_resumed_with_more_steps_says_both_learning_rates(tmp_path, capsys):
    settings = [
        *("training.validate_every=2", "training.average_last=0", "training.warmup_steps=1"),
        *("training.peak_learning_rate=0.01", "training.decay=cosine"),
    ]
    train_here(tmp_path, *settings, "training.steps=2")
    train_here(tmp_path, *settings, "training.steps=3")
    # Half of the cosine between steps 1 and 3 is over.
    warning = "the learning rate of step 3 is 5.00e-03; with training.steps=2, as before, it would"
    assert f"warning: {warning} be 0.00e+00\n" in capsys.readouterr().err
    train_here(tmp_path, *settings, "training.steps=3")
    assert "the learning rate of step" not in capsys.readouterr().err


def test_the_last_checkpoints_stay(trained):
    names = {step: path.name for step, path in trained.checkpoints().items()}
    assert names == {step: f"step-{step:08d}.weights.h5" for step in (6, 8, 10)}


def test_the_average_is_the_mean_of_the_last_checkpoints_and_translates(trained, tmp_path):
    copy = ModelDir(shutil.copytree(trained.path, tmp_path / "copy"))
    paths = average_checkpoints(copy, last=2)
    assert paths == list(copy.checkpoints().values())[-2:]
    assert copy.weights_path() == copy.average_path
    assert_average_of(copy, paths)


def test_the_best_weights_are_those_of_the_lowest_validation_perplexity(trained):
    perplexities = logged(trained, "val_perplexity")
    best = 2 * (1 + int(np.argmin(perplexities)))
    assert best in (6, 8, 10)  # whose checkpoints still stand
    model = load_model(trained)
    for weight, other in zip(
        *(weights_of(model, path) for path in (trained.checkpoint_path(best), trained.best_path))
    ):
        np.testing.assert_array_equal(weight, other)


@pytest.mark.slow
def test_a_finished_run_started_again_only_averages(trained, capsys):
    before = trained.training_state_path.read_bytes()
    train_here(trained.path, *TEN_STEPS)
    assert "training has already ended, after step 10" in capsys.readouterr().err
    assert trained.training_state_path.read_bytes() == before


def test_another_model_is_not_trained_into_the_directory(trained):
    for name, before, changed in (
        ("model.d_model", "32", "64"),
        ("training.validate_by", "'perplexity'", "bleu"),
        ("training.freeze", "'none'", "both"),
        ("training.ema", "0.0", "0.6"),
    ):
        with pytest.raises(
            ConfigError,
            match=f"{name} must be {before}, as in the model that .* received .*{changed}",
        ):
            train_here(trained.path, f"{name}={changed}")


def test_average_needs_checkpoints_and_a_positive_number(trained, tmp_path):
    empty = ModelDir(tmp_path)
    empty.write_config(trained.read_config())
    for model_dir, which, message in (
        (trained, {"last": 0}, "last must be positive; received last=0"),
        (trained, {"best": -1}, "best must be positive; received best=-1"),
        (trained, {"last": 1, "best": 1}, "last must be None if best is given; received last=1"),
        (empty, {"last": 1}, "no checkpoints to average"),
    ):
        with pytest.raises(ConfigError, match=message):
            average_checkpoints(model_dir, **which)


@pytest.mark.slow
@pytest.mark.parametrize("as_path", [str, ModelDir])
def test_average_takes_the_number_of_the_recipe_by_default(trained, tmp_path, as_path):
    copy = shutil.copytree(trained.path, tmp_path / "copy")
    averaged = average_checkpoints(as_path(copy))
    assert [path.name for path in averaged] == [
        "step-00000008.weights.h5",
        "step-00000010.weights.h5",
    ]


def test_the_best_checkpoints_are_known_without_the_log(trained, tmp_path):
    scores = dict(zip(logged(trained, "step"), logged(trained, "val_perplexity")))
    copy = ModelDir(shutil.copytree(trained.path, tmp_path / "copy"))
    copy.log_path.unlink()
    (best,) = average_checkpoints(copy, best=1)
    assert best == copy.checkpoint_path(min((6, 8, 10), key=scores.get))
