"""The command line: mistakes end with one clear line and a non-zero exit code, without incomplete files."""

import errno
import gzip
import io
import json
import lzma
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import threading

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
import zstandard
from conftest import sentence_pairs

from examples.corpus import generate
from keras_transformer import TransformerConfig, Translator, __version__
from keras_transformer.commands.main import COMMANDS, RENAMED, main
from keras_transformer.commands.options import Parser
from keras_transformer.config import Config, DataConfig
from keras_transformer.errors import ConfigError, DivergedError, LockedError, MemoryLimitError
from keras_transformer.model_dir import ModelDir
from keras_transformer.translation.attention import translate_with_attention

VOCABULARIES = dict(source_vocab_size=100, target_vocab_size=100)
ENGLISH = "the dog runs\na cat sleeps\n"
GERMAN = "der hund rennt\neine katze schläft\n"


@pytest.fixture
def text(tmp_path):
    """Writes files to the test's folder and returns their paths."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


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
        # A mistake on the command line has another exit code than one in a value, a file or a combination.
        assert stopped.value.code == (2 if lines[0].endswith(" --help)") else 1)
        return lines[0]

    return run


def train_arguments(text, source=ENGLISH, target=GERMAN, **options):
    arguments = {
        "--source": text("train.en", source),
        "--target": text("train.de", target),
        "--valid-source": text("valid.en", ENGLISH),
        "--valid-target": text("valid.de", GERMAN),
        "--config": "demo",
        **options,
    }
    return [part for pair in arguments.items() for part in pair]


@pytest.mark.parametrize(
    "source, target, expected",
    [
        (ENGLISH, "nur eine\n", ["train.en", "train.de", "2", "1"]),
        ("", "", ["train.en", "empty"]),
        (b"the dog\nthe \xff cat\n", "der\ndie\n", ["train.en", "line 2", "UTF-8"]),
    ],
    ids=["different lengths", "empty", "invalid UTF-8"],
)
def test_bad_text_is_named_and_no_model_directory_is_made(text, fails, tmp_path, source, target, expected):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text, source, target), "--model-dir", model_dir)
    for part in expected:
        assert part in message
    assert not model_dir.exists()


def test_a_vocabulary_larger_than_the_text_supports_is_refused(text, fails, tmp_path):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text), "--model-dir", model_dir)
    assert "tokenizer.vocab_size must be at most" in message and "received tokenizer.vocab_size=1500" in message
    assert not model_dir.exists()


@pytest.mark.slow
def test_train_reads_shards_and_several_corpora_and_holds_pairs_out(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = generate(300, seed=4)
    for number, open_compressed in enumerate((gzip.open, lzma.open, zstandard.open)):
        suffix = ("gz", "xz", "zst")[number]
        for side, language in enumerate(("en", "de")):
            with open_compressed(f"{number}.{language}.{suffix}", "wt", encoding="utf-8") as file:
                file.writelines(f"{pair[side]}\n" for pair in pairs[100 * number : 100 * number + 100])
    pathlib.Path("few.en").write_text("".join(f"{source}\n" for source, _ in pairs[:30]))
    pathlib.Path("few.de").write_text("".join(f"{source}\n" for source, _ in pairs[:10]) + "eins zwei drei\n" * 20)
    sizes = ["num_layers=1", "d_model=8", "d_ff=8", "num_heads=1"]
    main(
        [
            *("train", "--model-dir", "model", "--config", "demo", "--valid-size", "25"),
            *("--source", "?.en.*", "few.en", "--target", "?.de.*", "few.de"),
            *("--set", "data.weights=[1, 3]", "data.remove_copies=true", *(f"model.{size}" for size in sizes)),
            *("--set", "tokenizer.vocab_size=400", "training.steps=1", "training.precision=float32"),
        ]
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    said = captured.err.splitlines()
    assert said[0] == "filters removed 10 of 330 sentence pairs: 10 by remove_copies"
    assert said[1].startswith("held out 25 sentence pairs")
    assert "validation text: 25 sentence pairs" in said
    (line,) = (line for line in said if line.startswith("training text: "))
    # What is left of 300 pairs once, and of 20 three times.
    assert 275 + 3 * 10 < int(line.split()[2]) < 300 + 3 * 20
    assert ModelDir("model").read_config().data == DataConfig(weights=[1, 3], remove_copies=True)


@pytest.mark.parametrize("command", ["translate", "evaluate", "score", "average", "export", "plot"])
def test_a_directory_that_is_no_model_directory_is_refused(text, fails, tmp_path, command):
    arguments = {
        "evaluate": ["--source", text("a", ENGLISH), "--reference", text("b", GERMAN)],
        "score": ["--source", text("a", ENGLISH), "--target", text("b", GERMAN)],
        "export": ["--output", tmp_path / "servable"],
        "plot": ["--text", "the dog", "--output", tmp_path / "picture.png"],
    }
    message = fails(command, "--model-dir", tmp_path, *arguments.get(command, []))
    assert f"{tmp_path}: not a model directory" in message
    assert not (tmp_path / "servable").exists()


@pytest.mark.parametrize("format, package", [("ctranslate2", "ctranslate2"), ("onnx", "tf2onnx")])
def test_a_missing_package_of_a_format_is_named_with_its_extra(fails, tmp_path, monkeypatch, format, package):
    monkeypatch.setitem(sys.modules, package, None)
    message = fails("export", "--model-dir", tmp_path, "--output", tmp_path / "out", "--format", format)
    assert message.endswith(
        f"error: --format {format} needs the package {package}: pip install 'keras3-transformer[{format}]'"
    )


REFUSED = {
    "ctranslate2": [
        *(("--beam-size", 1), ("--length-penalty", 1), ("--precision", "bfloat16"), ("--signatures", "score")),
        *(("--no-verify",), ("--serving-default", "score"), ("--languages", "en-de"), ("--license", "MIT")),
    ],
    "hugging-face": [("--precision", "int8-weights"), ("--signatures", "score"), ("--no-verify",)],
    "onnx": [("--beam-size", 1), ("--languages", "en-de")],
}


@pytest.mark.parametrize("format, option", [(format, option) for format in REFUSED for option in REFUSED[format]])
def test_settings_are_refused_where_they_would_be_lost(fails, tmp_path, format, option):
    message = fails("export", "--model-dir", tmp_path, "--output", tmp_path / "out", "--format", format, *option)
    assert option[0] in message and f"must not be given with --format {format}" in message


@pytest.fixture(scope="module", autouse=True)
def loads_once():
    """Loads and compiles a model once for all commands that run in this process with the same settings."""
    load, set_seed, loaded = Translator.load, keras.utils.set_random_seed, {}

    def load_once(model_dir, decoding=None, *settings):
        config = ModelDir(model_dir).read_config()
        key = (str(model_dir), repr([config, decoding or config.decoding, *settings]))
        if key not in loaded:
            loaded[key] = load(model_dir, decoding, *settings)
        return loaded[key]

    def set_seed_and_load_anew(seed):
        # It takes away the SentencePiece models that TensorFlow holds.
        loaded.clear()
        set_seed(seed)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Translator, "load", load_once)
        monkeypatch.setattr(keras.utils, "set_random_seed", set_seed_and_load_anew)
        yield


@pytest.fixture(scope="module")
def translator(loads_once, tiny_model_dir):
    return Translator.load(tiny_model_dir)


def run_command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer", *map(str, arguments)], capture_output=True, **options
    )


def test_a_mistake_ends_a_real_process_with_one_line_and_code_1(tmp_path):
    result = run_command("translate", "--model-dir", tmp_path, input=b"")
    assert result.returncode == 1
    assert result.stdout == b""
    assert result.stderr.count(b"\n") == 1 and b"Traceback" not in result.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['keras-transformer', '--help']; import keras_transformer.commands.main as cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'yaml', 'jax'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    for command in COMMANDS:
        assert command in result.stdout


def test_the_help_of_every_command_ends_with_its_example(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0
        _, example = capsys.readouterr().out.split("\nexample:\n")
        expected = f"keras-transformer {command} {COMMANDS[command].example}"
        assert shlex.split(example.replace("\\\n", "")) == shlex.split(expected)


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_the_example_of_a_command_has_options_that_it_knows(name, command):
    arguments = shlex.split(command.example.partition(" < ")[0])
    parser = Parser()
    command.add_options(parser)
    assert parser.parse_args(arguments)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_prefix_of_an_option_is_not_the_option(fails, command):
    assert "error: " in fails(command, "--hel")


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_goes_on_working(old, new, capsys):
    for name in (old, new):
        with pytest.raises(SystemExit):
            main([name, "--help"])
    help, said = capsys.readouterr()
    assert help.count(f"usage: keras-transformer {new} ") == 2
    assert said == f"keras-transformer {old}: this command is now named {new}\n"


@pytest.mark.parametrize("command", ["translate", "export"])
def test_int8_is_the_earlier_name_of_int8_weights(command):
    parser = Parser()
    COMMANDS[command].add_options(parser)
    arguments = shlex.split(COMMANDS[command].example.partition(" < ")[0])
    assert parser.parse_args([*arguments, "--precision", "int8"]).precision == "int8-weights"


def test_what_is_no_option_is_named(fails):
    expected = "keras-transformer: error: unrecognized arguments: --beam 4 (see keras-transformer --help)"
    assert fails("translate", "--model-dir", "a", "--beam", "4") == expected


@pytest.fixture
def translate(tiny_model_dir, tmp_path, monkeypatch, capsys):
    """Runs the command in this process with a text as standard input; returns what it writes to the two streams."""

    def translate(text, *options):
        (tmp_path / "source").write_bytes(text)
        with open(tmp_path / "source") as file:
            monkeypatch.setattr("sys.stdin", file)
            main(["translate", "--model-dir", str(tiny_model_dir), *map(str, options)])
        return capsys.readouterr()

    return translate


def test_translate_answers_every_line_with_one_line(translator, translate):
    lines = [b"Anna sees a tree.", b"", b"the dog buys two apples.", b"\xff\xfe", b"  ", b"x" * 5000]
    output = translate(b"\n".join(lines) + b"\n")
    answers = output.out.split("\n")
    assert answers.pop() == ""
    assert len(answers) == len(lines)
    assert answers[0] == "Anna hat einen Baum, sieht!"
    assert answers[1] == answers[4] == ""
    assert answers == [answer.replace("\n", " ") for answer in translator(lines)]
    # The one line that did not fit is named, on standard error.
    assert "line 6:" in output.err and "truncated to model.max_length=64" in output.err


@pytest.mark.slow
def test_translate_documents_answers_every_line_with_one_line(translator, translate):
    lines = ["Anna sees a tree. Anna buys two apples.", "", "Zoë greets the bridge. " + "x" * 5000, "Mr. Anna. Zoë"]
    output = translate("\n".join(lines).encode() + b"\n", "--documents", "--language", "en")
    answers = output.out.split("\n")
    assert answers.pop() == ""
    actual = translator.translate_document(lines, "en")
    assert answers == [result.text.replace("\n", " ") for result in actual]
    said = [line for line in output.err.splitlines() if "a part has no translation" in line]
    assert said == [
        "line 3: a part has no translation: a document may have 200 sentences and 8,192 tokens, and a word the model's "
        "64 tokens"
    ]


@pytest.mark.slow
def test_translate_with_prefixes_and_sampling(translate, tmp_path, monkeypatch, capsys):
    lines = ["Anna sees a tree."] * 3 + ["", "the dog buys two apples."]

    def answers_with(*options):
        # Not splitlines(): what is drawn may have other line separators.
        return translate("\n".join(lines).encode() + b"\n", *options).out.split("\n")[:-1]

    prefix = tmp_path / "prefix"
    prefix.write_text("\nZo\u00eb\nAnna hat zwei\n\nder Hund")
    answers = answers_with("--prefix", prefix)
    assert answers[0] == "Anna hat einen Baum, sieht!" and answers[3] == ""
    assert answers[1].startswith("Zo\u00eb") and answers[2].startswith("Anna hat zwei")
    arguments = ("--sample", "--temperature", 3, "--top-p", 0.99)
    samples = answers_with(*arguments, "--seed", 5)
    assert samples != answers_with(*arguments, "--seed", 6)
    assert len(set(samples[:3])) == 3 and samples[3] == ""
    monkeypatch.setattr("keras_transformer.commands.translate.LINES_PER_BLOCK", 2)
    assert answers_with(*arguments, "--seed", 5) == samples
    for content, said in (("a\n" * 4, "it has 4, which has more"), ("a\n" * 6, "it has more")):
        prefix.write_text(content)
        with pytest.raises(SystemExit):
            answers_with("--prefix", prefix)
        assert f"{prefix}: there must be as many lines as in standard input; {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        (["--seed", "1"], "--seed needs --sample"),
        (["--sample", "--n-best", "2"], "give either --sample or --n-best"),
        (["--documents", "--sample"], "--documents cannot be combined with --sample, --n-best or --prefix"),
        (["--language", "de"], "--language needs --documents"),
        (["--sample", "--top-p", "1.5"], "--top-p must be above 0 and at most 1; received --top-p=1.5"),
        (["--prefix", "nowhere"], "--prefix must be a file that exists; received --prefix='nowhere'"),
    ],
)
def test_translate_refuses_options_that_do_not_go_together(tiny_model_dir, fails, options, message):
    assert message in fails("translate", "--model-dir", str(tiny_model_dir), *options)


@pytest.mark.slow
def test_translate_n_best_gives_number_score_and_translation(translate):
    output = translate(b"Anna sees a tree.\n", "--n-best", 2, "--beam-size", 3)
    rows = [line.split("\t") for line in output.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1"]
    assert float(rows[0][1]) >= float(rows[1][1])
    assert rows[0][2] == "Anna hat einen Baum, sieht!" != rows[1][2]


@pytest.fixture
def known_pairs(text):
    return {
        "--source": text("known.en", "Anna sees a tree.\nthe dog buys two apples.\n"),
        "--reference": text("known.de", "Anna hat einen Baum, sieht!\nder Hund hat zwei Äpfel, kauft!\n"),
    }


def test_evaluate_prints_scores_with_signatures_or_json(tiny_model_dir, known_pairs, capsys):
    arguments = ["evaluate", "--model-dir", str(tiny_model_dir)]
    arguments += [part for pair in known_pairs.items() for part in pair]
    main(arguments)
    printed = capsys.readouterr().out
    assert "BLEU = 100.00" in printed and "chrF2 = 100.00" in printed
    assert "(95% confidence: ± 0.00)" in printed
    assert "case:mixed" in printed and "tok:13a" in printed
    main([*arguments, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["bleu"]["score"] == pytest.approx(100) and result["bleu"]["interval"] == pytest.approx(0)
    assert "tok:13a" in result["bleu"]["signature"] and set(result) == {"bleu", "chrf"}


def test_score_prefers_the_known_translation(tiny_model_dir, known_pairs, text, capsys):
    def scores(target):
        source = known_pairs["--source"]
        main(["score", "--model-dir", str(tiny_model_dir), "--source", source, "--target", target])
        return [float(line) for line in capsys.readouterr().out.splitlines()]

    right = scores(known_pairs["--reference"])
    wrong = scores(text("wrong.de", "der Hund hat zwei Äpfel, kauft!\nAnna hat einen Baum, sieht!\n"))
    assert len(right) == 2 and all(0 >= score > other for score, other in zip(right, wrong))


@pytest.mark.slow
def test_the_attention_of_a_sentence_is_drawn(tiny_model_dir, tmp_path, capsys):
    picture = tmp_path / "attention.png"
    arguments = ["plot", "--model-dir", str(tiny_model_dir), "--output", str(picture)]
    main([*arguments, "--text", "Anna sees a tree."])
    assert capsys.readouterr().out == "Anna hat einen Baum, sieht!\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    main([*arguments, "--text", "Anna sees a tree. " * 9, "--overwrite"])
    assert "--text, line 1: too many tokens, truncated to model.max_length=64\n" in capsys.readouterr().err


@pytest.mark.slow
def test_the_labels_of_a_picture_are_the_tokens_that_the_search_chose(translator, request):
    # Hardly ever the segmentation that the tokenizer chooses for the same text.
    table = translator.model.output_projection.embedding.token_table
    noise = np.random.default_rng(0).normal(size=(328, 64), scale=0.3).astype("float32")
    trained = table.numpy()
    table.assign_add(noise)
    request.addfinalizer(lambda: table.assign(trained))
    attention = translate_with_attention(translator, "Anna sees a tree.")
    target = attention.by_kind["cross"].queries
    search = tf.function(translator.graph.search, autograph=False)
    chosen = search(tf.constant(["Anna sees a tree."])).token_ids.numpy()[0, 0]
    chosen = chosen[chosen != 0]
    assert target == translator.tokenizers.target.pieces(chosen)
    assert target[:-1] != translator.tokenizers.target.pieces(
        translator.tokenizers.target.tokenize([attention.translation])[0].numpy()
    )


# What can be checked without TensorFlow.

NO_TENSORFLOW = """
import contextlib, io, json, sys
for name in ("tensorflow", "tensorflow_text", "keras"):
    sys.modules[name] = None
from keras_transformer.commands.main import main
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main(arguments)
    print(json.dumps(said.getvalue()))
"""
TEXT = ("--source", "a.en", "--reference", "a.de")
PAIRS = ("--source", "a.en", "--target", "a.de")
FOUR = (*PAIRS, "--valid-source", "a.en", "--valid-target", "a.de")
PICTURE = ("plot", "--text", "a", "--output", "a.html")
ONE_TRAINING_TEXT = "give the training text in one way: by --source and --target, by --pairs, or by --tfds"
ONE_VALIDATION_TEXT = (
    "give the validation text in one way: by --valid-source and --valid-target, by --valid-pairs, or held out of the "
    "training text by --valid-fraction or --valid-size"
)
MISTAKES = [
    (("translate", "--beam-size", "0"), "--beam-size must be positive; received --beam-size=0"),
    (("translate", "--beam-size", "9" * 50), "--beam-size must be at most 1,000; received --beam-size=999"),
    (("translate", "--beam-size", "2.5"), "argument --beam-size: invalid int value: '2.5'"),
    (("translate", "--length-penalty", "nan"), "--length-penalty must be at least 0 and finite; received"),
    (("translate", "--length-penalty", "5.1"), "--length-penalty must be at most 5; received --length-penalty=5.1"),
    (("translate", "--n-best", "5"), "--n-best must be at most the beam size 4; received --n-best=5"),
    (("translate", "--n-best", "4", "--beam-size", "2"), "--n-best must be at most the beam size 2; received"),
    (("translate", "--model-dir", ""), "--model-dir must be a text that is not empty; received --model-dir=''"),
    (("translate", "--model-dir", "a.en"), "--model-dir must be a directory; received --model-dir='a.en'"),
    (("translate", "--model-dir", "absent"), "absent: not a model directory (it has no config.yaml)"),
    (("translate", "--model-dir", "untrained"), "untrained: no trained weights"),
    (("evaluate", "--model-dir", "untrained", *TEXT), "untrained: no trained weights"),
    (("evaluate", *TEXT, "--source", "absent.en"), "--source must be a file that exists, or - for standard input; rec"),
    (
        ("evaluate", *TEXT, "--reference", "untrained"),
        "--reference must be a file that exists, or - for standard input",
    ),
    (("evaluate", *TEXT, "--source", "empty"), "empty: the file is empty"),
    (("score", *PAIRS, "--target", "a\nb"), "--target must be a file that exists, or - for standard input; received"),
    (("score", *PAIRS, "--source", "-", "--target", "-"), "can be read only once; received --source -, --target -"),
    (("score", *PAIRS, "--model-dir", "many\nlines"), "many lines: not a model directory"),
    (("export", "--output", "a.en"), "--output must be a directory; received --output='a.en'"),
    (("export", "--output", "[x]*"), "--output must be a path without any of * ? [ \\; received --output='[x]*'"),
    (("export", "--output", ""), "--output must be a text that is not empty; received --output=''"),
    (
        ("export", "--output", "out", "--languages", "english"),
        "--languages must be two languages, such as en-de; received",
    ),
    (
        ("export", "--output", "out", "--license", ""),
        "--license must be a text that is not empty; received --license=''",
    ),
    (("average",), "trained: no checkpoints to average"),
    (("average", "--last", "0"), "--last must be positive; received --last=0"),
    (("average", "--last", "1", "--best", "1"), "give either --last or --best"),
    (("plot", "--text", " ", "--output", "a.png"), "--text must be a text that is not blank; received"),
    (
        ("plot", "--text", "a", "--output", "a.doc"),
        "--output must be a file ending in .png, .svg, .pdf or .html; rec",
    ),
    (
        ("plot", "--text", "a\udcff", "--output", "a.png"),
        "--text must be valid UTF-8; received --text='a\\udcff'",
    ),
    (("export", "--output", "a\udcff"), "--output must be valid UTF-8; received --output='a\\udcff'"),
    (("serve", "--port", "65536"), "--port must be at most 65,535; received --port=65536"),
    ((*PICTURE, "--layer", "0"), "--layer must be a positive number, all or last; received --layer='0'"),
    ((*PICTURE, "--head", "last"), "--head must be a positive number or all; received --head='last'"),
    ((*PICTURE, "--layer", "5"), "layer must be at most 4, as many as the model has; received layer='5'"),
    ((*PICTURE, "--head", "5"), "head must be at most 4, as many as the model has; received head='5'"),
    (("train", *FOUR, "--devices", "99"), "--devices must be at most 64; received --devices=99"),
    (("train", *FOUR, "--config", ""), "--config must be a text that is not empty; received --config=''"),
    (("train", *FOUR, "--config", "absent.yaml"), "absent.yaml: No such file or directory"),
    (("train", *FOUR, "--set", "model.activation=rleu"), "--set model.activation=rleu: model.activation must be"),
    (("train", *FOUR, "--set", "model.d_modle=64"), "unknown configuration key 'model.d_modle'; did you mean 'd_mod"),
    (("train", *FOUR, "--config", "multi3k"), "--config must be a .yaml file or one of annotated, demo, fine-tune"),
    (("train", *FOUR, "--config", "key.yaml"), "key.yaml: unknown configuration key 'training.step'; did you mean 'st"),
    (("train", *FOUR, "--config", "open.yaml"), "open.yaml, line 3: cannot be read as YAML"),
    (
        ("train", *FOUR, "--valid-target", "absent"),
        "--valid-target must be a file that exists, a pattern of files such as 'news-*.en.gz', or - for standard input",
    ),
    (("train", *PAIRS), ONE_VALIDATION_TEXT),
    (("train", *PAIRS, "--valid-source", "a.en"), ONE_VALIDATION_TEXT),
    (("train", *PAIRS, "--valid-size", "1", "--valid-fraction", "0.1"), ONE_VALIDATION_TEXT),
    (("train", *FOUR, "--valid-pairs", "a.en"), ONE_VALIDATION_TEXT),
    (("train", *PAIRS, "--valid-fraction", "1"), "--valid-fraction must be above 0 and below 1; received"),
    (("train", *PAIRS, "--valid-size", "3"), "--valid-size must be at most the number of different sentence pairs, 2"),
    (("train", *PAIRS, "--pairs", "a.en", "--valid-size", "1"), ONE_TRAINING_TEXT),
    (("train", "--source", "a.en", "--valid-size", "1"), ONE_TRAINING_TEXT),
    (("train", "--pairs", "a.en", "--tfds", "x"), ONE_TRAINING_TEXT),
    (
        ("train", "--pairs", "a.en", "--valid-size", "1"),
        "a.en: line 1 must have exactly one tab; received 'the dog run",
    ),
    (("train", "--pairs", "b*", "--valid-size", "1"), "b*: no file matches this pattern"),
    (("train", *FOUR, "--source", "a.de"), "must be given as many files; received 2 (a.de, a.en) and 1 (a.de)"),
    (
        ("train", *FOUR, "--set", "data.weights=[1,2]"),
        "data.weights must be a list of one number for each corpus, here",
    ),
    (("train", *FOUR, "--set", "data.source_script=Latn1"), "data.source_script must be the name of a Unicode script"),
    (("train", *FOUR, "--set", "data.target_script=Thai"), "filters leave none of the 2 sentence pairs: 2 by target_"),
    (
        ("train", *FOUR, "--source", "-", "--valid-source", "-"),
        "can be read only once; received --source -, --valid-so",
    ),
    (("train", "--tfds", ""), "--tfds must be a text that is not empty; received --tfds=''"),
]


OUTPUTS = [
    (("augment", "--source", "a.en", "--output", "a", "--typos", "1"), "a.source"),
    (("synthesize", "--target", "a.en", "--output", "a"), "a.source"),
    (("synthesize", "--source", "a.en", "--output", "a"), "a.target"),
    (("build-shortlist", *PAIRS, "--links", "a.html"), "a.html"),
    (PICTURE, "a.html"),
    (("compare", *TEXT, "--output", "a.html"), "a.html"),
]


@pytest.mark.parametrize(("arguments", "output"), OUTPUTS)
def test_a_file_that_exists_is_not_replaced_and_an_input_never(arguments, output, text, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text("a.en", ENGLISH), text("a.de", GERMAN), text(output, "foreign")
    command, *options = arguments
    model = [] if command == "augment" else ["--model-dir", "model"]
    message = fails(command, *model, *options)
    assert message.endswith(f"{output}: the file exists already; write to another one, or give --overwrite")
    if (given := {"--source", "--target"} & {*options}) and command != "build-shortlist":
        (name,) = given
        options[options.index(name) + 1] = output
        message = fails(command, *model, *options, "--overwrite")
        assert message.endswith(f"{output}: this file is read, as {name}, and must not be written")
    assert (tmp_path / output).read_text() == "foreign"


def test_mistakes_are_found_before_tensorflow_is_loaded(text, tmp_path):
    text("a.en", ENGLISH), text("a.de", GERMAN), text("empty", "")
    for name in ("trained", "untrained"):
        (tmp_path / name).mkdir()
        ModelDir(tmp_path / name).write_config(Config(TransformerConfig.preset("tiny", **VOCABULARIES)))
    text("trained/best.weights.h5", "")
    text("key.yaml", "training:\n  step: 5\n"), text("open.yaml", "model:\n  d_model: [1\n")
    commands = [[command, "--model-dir", "trained", *options] for (command, *options), _ in MISTAKES]
    result = subprocess.run(
        [sys.executable, "-c", NO_TENSORFLOW],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    said = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(said) == len(MISTAKES)
    for message, ((command, *_), expected) in zip(said, MISTAKES):
        assert message.count("\n") == 1 and message.startswith(f"keras-transformer {command}: error: "), message
        assert expected in message


# What is an error of the user or of the machine, and what is a bug.


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError("d_model must\nbe positive"), "d_model must be positive"),
        (DivergedError("the loss is nan"), "the loss is nan"),
        (LockedError("another training runs here"), "another training runs here"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.en"), "a.en: No such file or directory"),
        (OSError("a.h5: cannot be read"), "a.h5: cannot be read"),
        (MemoryLimitError("a request of 7 GiB"), "a request of 7 GiB"),
        (MemoryError(), "out of memory"),
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor\n\t [[node]]"),
            "out of memory: OOM when allocating tensor",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "a/variables; No space left on device"),
            "the disk is full: a/variables; No space left on device",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_is_one_line(error, message, fails, monkeypatch):
    monkeypatch.setitem(COMMANDS, "train", COMMANDS["train"]._replace(run=raising(error)))
    assert fails("train", "--model-dir", "m") == f"keras-transformer train: error: {message}"


def test_an_array_that_does_not_fit_is_one_line(fails, monkeypatch):
    monkeypatch.setitem(COMMANDS, "train", COMMANDS["train"]._replace(run=lambda options: np.empty(2**55)))
    assert fails("train", "--model-dir", "m").startswith(
        "keras-transformer train: error: out of memory: Unable to alloc"
    )


@pytest.mark.parametrize(
    "error", [ValueError("a shape"), KeyError("x"), tf.errors.InvalidArgumentError(None, None, "x")]
)
def test_a_bug_has_a_traceback(error, monkeypatch):
    monkeypatch.setitem(COMMANDS, "train", COMMANDS["train"]._replace(run=raising(error)))
    with pytest.raises(type(error)):
        main(["train", "--model-dir", "m"])


def raising(error):
    def run(options):
        raise error

    return run


def test_an_endless_line_is_one_line(tiny_model_dir, fails, monkeypatch):
    with open("/dev/zero") as zeros:
        monkeypatch.setattr(sys, "stdin", zeros)
        message = fails("translate", "--model-dir", tiny_model_dir)
    error = "translate: error: standard input: line 1 must have at most 1,048,576 bytes; it has more"
    assert message == f"keras-transformer {error}"


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"keras-transformer {__version__}\n"


# Settings of Keras that are for other programs; those of `translate` are in the test of a writer that waits.


@pytest.fixture
def foreign_settings(tmp_path):
    """Environment variables as a user of another backend may have them."""
    settings = {"backend": "torch", "floatx": "float16", "image_data_format": "channels_first", "epsilon": 0.1}
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "keras.json").write_text(json.dumps(settings))
    limits = {"KERAS_MAX_EPOCHS": "1", "KERAS_MAX_STEPS_PER_EPOCH": "1"}
    return {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(tmp_path / "keras"), **limits}


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["[]", '{"floatx": "float128"}', "{", '{"backend": "numpy"}'])
def test_settings_of_keras_that_make_no_sense_harm_no_command(tiny_model_dir, known_pairs, foreign_settings, settings):
    pathlib.Path(foreign_settings["KERAS_HOME"], "keras.json").write_text(settings)
    arguments = [part for pair in known_pairs.items() for part in pair]
    result = run_command("evaluate", "--model-dir", tiny_model_dir, *arguments, env=foreign_settings)
    assert b"BLEU = 100.00" in result.stdout, result.stderr


@pytest.mark.slow
def test_train_needs_none_of_the_users_settings_of_keras(text, tmp_path, foreign_settings):
    pairs = sentence_pairs()
    english, german = ("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1))
    arguments = train_arguments(text, english, german, **{"--valid-target": text("v.de", GERMAN)})
    small = ("tokenizer.vocab_size=320", "training.steps=4", "training.validate_every=2", "model.num_layers=1")
    result = run_command("train", *arguments, "--model-dir", tmp_path / "m", "--set", *small, env=foreign_settings)
    assert result.returncode == 0, result.stderr
    assert b"step 2:" in result.stderr and b"step 4:" in result.stderr


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("0", "0")])
def test_train_turns_on_onednn_unless_the_user_says_otherwise(text, fails, tmp_path, monkeypatch, given, expected):
    name = "TF_ENABLE_ONEDNN_OPTS"
    # Set first, so that the test leaves the variable as it was.
    monkeypatch.setenv(name, given or "")
    if given is None:
        del os.environ[name]
    fails("train", *train_arguments(text), "--model-dir", tmp_path / "model", "--set", "model.dropout=2")
    assert os.environ[name] == expected


# Streams.


@pytest.mark.slow
def test_translate_answers_a_writer_that_waits(tiny_model_dir, foreign_settings):
    arguments = [sys.executable, "-m", "keras_transformer", "translate", "--model-dir", str(tiny_model_dir)]
    # Standard error is closed, and Keras is set up for other programs, which changes nothing.
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *arguments]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen(command, env=foreign_settings, **pipes) as process:
        watchdog = threading.Timer(600, process.kill)
        watchdog.start()
        for line, answer in (
            (b"Anna sees a tree.\n", b"Anna hat einen Baum, sieht!\n"),
            (b"\r\n", b"\n"),
            ("Zoë sees a tree.\r\n".encode(), "Zoë hat einen Baum, sieht!\n".encode()),
        ):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == answer
        process.stdin.write(b"Anna sees a tree.")
        process.stdin.close()
        assert process.stdout.read() == b"Anna hat einen Baum, sieht!\n"
        watchdog.cancel()
    assert process.returncode == 0


@pytest.mark.parametrize(("stream", "name"), [("<&-", "input"), (">&-", "output")])
def test_a_closed_stream_is_one_line(tiny_model_dir, stream, name):
    arguments = [sys.executable, "-m", "keras_transformer", "translate", "--model-dir", str(tiny_model_dir)]
    result = subprocess.run(["sh", "-c", f'exec "$@" {stream}', "sh", *arguments], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == f"keras-transformer translate: error: standard {name} is closed\n"


@pytest.fixture
def typed(monkeypatch):
    """Makes bytes standard input."""

    def type_(content):
        stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
        monkeypatch.setattr(sys, "stdin", stream)

    return type_


def test_a_dash_is_standard_input(tiny_model_dir, known_pairs, typed, fails, capsys):
    source, reference = known_pairs.values()
    model = ["--model-dir", str(tiny_model_dir)]
    with open(source, "rb") as file:
        content = file.read()
    main(["score", *model, "--source", source, "--target", reference])
    expected = capsys.readouterr().out
    typed(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    main(["score", *model, "--source", "-", "--target", reference])
    assert capsys.readouterr().out == expected
    with open(reference, "rb") as file:
        typed(file.read())
    main(["evaluate", *model, "--source", source, "--reference", "-"])
    assert "BLEU = 100.00" in capsys.readouterr().out
    typed(content + b"\xff")
    message = fails("score", *model, "--source", "-", "--target", reference)
    assert "standard input: line 3 is not valid UTF-8" in message
    typed(b"one\n")
    message = fails("score", *model, "--source", source, "--target", "-")
    assert message.endswith(f"{source} has 2, standard input has 1")


def test_evaluate_and_score_say_which_lines_they_cut(tiny_model_dir, text, capsys):
    source, target = text("a.en", ENGLISH + "x" * 100 + "\n"), text("a.de", "y" * 100 + "\n" + GERMAN)
    main(["score", "--model-dir", str(tiny_model_dir), "--source", source, "--target", target])
    said = [line for line in capsys.readouterr().err.splitlines() if "truncated" in line]
    assert len(said) == 2 and all(line.endswith("too many tokens, truncated to model.max_length=64") for line in said)
    assert said[0].startswith(f"{source}, line 3: ") and said[1].startswith(f"{target}, line 1: ")
    main(["evaluate", "--model-dir", str(tiny_model_dir), "--source", source, "--reference", target])
    said = [line for line in capsys.readouterr().err.splitlines() if "truncated" in line]
    assert len(said) == 1 and said[0].startswith(f"{source}, line 3: ")


@pytest.mark.slow
def test_a_path_is_a_path_whatever_its_characters(tiny_model_dir, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "[x]*"
    shutil.copytree(tiny_model_dir, folder / "?")
    (folder / "a.en").write_text("Anna sees a tree.\n")
    model = ["--model-dir", str(folder / "?")]
    main(["score", *model, "--source", str(folder / "a.en"), "--target", str(folder / "a.en")])
    main(["plot", *model, "--text", "Anna sees a tree.", "--output", str(folder / "[a].PNG")])
    assert capsys.readouterr().out.endswith("\nAnna hat einen Baum, sieht!\n")
    assert (folder / "[a].PNG").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == ["?", "[a].PNG", "a.en"]


# Foreign files in a model directory.


@pytest.mark.parametrize("kind", ["external link", "soft link", "external data"])
def test_weights_that_point_to_other_files_are_refused(tiny_model_dir, fails, tmp_path, kind):
    model_dir = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model_dir)
    # It would fit.
    secret = tmp_path / "secret.h5"
    shutil.copy(tiny_model_dir / "best.weights.h5", secret)
    with h5py.File(model_dir / "best.weights.h5", "r+") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        name = next(name for name in names if file[name].size > 1)
        shape, dtype = file[name].shape, file[name].dtype
        del file[name]
        if kind == "external link":
            file[name] = h5py.ExternalLink(str(secret), f"/{name}")
        elif kind == "soft link":
            file[name] = h5py.SoftLink(f"/{next(n for n in names if n != name and file[n].shape == shape)}")
        else:
            file.create_dataset(name, shape, dtype, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    problem = "the file is damaged" if kind == "external data" else "these weights do not fit the model in config.yaml"
    assert f"{model_dir}/best.weights.h5: {problem}" in fails("translate", "--model-dir", model_dir)


def test_a_symbolic_link_is_replaced_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "config.yaml").symlink_to(tmp_path / "precious")
    ModelDir(tmp_path).write_config(Config(TransformerConfig.preset("tiny", **VOCABULARIES)))
    assert (tmp_path / "precious").read_text() == "kept"
    assert not (tmp_path / "config.yaml").is_symlink()


# What newcomers do wrong most often: the command, and what its one line says.
MISTAKES_OF_NEWCOMERS = {
    "": "the following arguments are required: COMMAND (see keras-transformer --help)",
    "trian --source a.en": "argument COMMAND: invalid choice: 'trian'",
    "translate": "the following arguments are required: --model-dir (see keras-transformer translate --help)",
    "translate --model-dir missing": "missing: not a model directory (it has no config.yaml)",
    "translate --model-dir a.en": "--model-dir must be a directory; received --model-dir='a.en'",
    "translate --model-dir model --beam 4": "unrecognized arguments: --beam 4",
    "translate --model-dir model --beam-size 0": "--beam-size must be positive; received --beam-size=0",
    "translate --model-dir model --beam-size four": "argument --beam-size: invalid int value: 'four'",
    "translate --model-dir model --tag de": "a tag such as <bt> or >>de<<",
    "train --source a.en --target missing.de --model-dir new": "--target must be a file that exists, a pattern of",
    "train --source a.en --target a.de --model-dir new": "give the validation text in one way: by --valid-source",
    "train {text} --set model.dmodel=8": "unknown configuration key 'model.dmodel'; did you mean 'd_model'?",
    "train {text} --set d_model=8": "--set must be given SECTION.KEY=VALUE; received 'd_model=8'",
    "train {text} --set model.dropout=2": "model.dropout must be at least 0 and below 1; received model.dropout=2",
    "train {text} --config missing.yaml": "missing.yaml: No such file or directory",
    "train {short}": "source and target must have the same number of lines: a.en has 3, short.de has 2",
    "evaluate --model-dir model --source a.en --reference short.de": "a.en has 3, short.de has 2",
    "evaluate --model-dir model --source empty.en --reference empty.en": "empty.en: the text is empty",
    "export --model-dir model --output out --format tflite": "argument --format: invalid choice: 'tflite'",
    "serve": "give either --model-dir or --servable",
    "serve --servable model": "model: no saved_model.pb here or in a folder that is named by a version, such as 1",
    "plot --model-dir model --text A --output a.gif": "--output must be a file ending in .png, .svg, .pdf or",
    "plot --output a.png": "--model-dir must be given",
    "plot --model-dir model --layer 1 --output a.png": "--layer needs --text",
    "plot --model-dir model model --text A --output a.png": "--text needs one --model-dir; received 2",
    "synthesize --model-dir model --output a": "give --source to distill, or --target to translate back",
    "synthesize --model-dir model --source a.en --sample --output a": "--sample is for back-translation",
    "average --model-dir model --last 5": "model: no checkpoints to average",
}


@pytest.mark.parametrize("command", MISTAKES_OF_NEWCOMERS)
def test_a_newcomer_s_mistake_is_one_line_that_names_it(command, fails, tiny_model_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_model_dir, "model")
    for name, text in (("a.en", "A\nB\nC\n"), ("a.de", "D\nE\nF\n"), ("short.de", "D\nE\n"), ("empty.en", "")):
        pathlib.Path(name).write_text(text)
    valid = "--valid-source a.en --valid-target a.de --model-dir new"
    texts = {"text": f"--source a.en --target a.de {valid}", "short": f"--source a.en --target short.de {valid}"}
    message = fails(*shlex.split(command.format(**texts)))
    assert message.startswith("keras-transformer") and ": error: " in message
    assert MISTAKES_OF_NEWCOMERS[command] in message
    assert not pathlib.Path("new").exists()
