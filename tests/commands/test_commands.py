"""What `train`, `translate`, `evaluate`, `score` and `plot` do with the texts that they are
given."""

import gzip
import io
import json
import lzma
import pathlib
import shutil
import sys

import keras
import pytest
import zstandard
from command_line import ENGLISH, GERMAN

from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.commands.main import main
from keras_transformer.config import DataConfig
from keras_transformer.model_dir import ModelDir


@pytest.fixture(scope="module", autouse=True)
def loads_once():
    """Loads and compiles a model once for all commands that run in this process with the same
    settings."""
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


@pytest.mark.slow
def test_train_reads_shards_and_several_corpora_and_holds_pairs_out(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = generate(300, seed=4)
    for number, open_compressed in enumerate((gzip.open, lzma.open, zstandard.open)):
        suffix = ("gz", "xz", "zst")[number]
        for side, language in enumerate(("en", "de")):
            with open_compressed(f"{number}.{language}.{suffix}", "wt", encoding="utf-8") as file:
                file.writelines(
                    f"{pair[side]}\n" for pair in pairs[100 * number : 100 * number + 100]
                )
    pathlib.Path("few.en").write_text("".join(f"{source}\n" for source, _ in pairs[:30]))
    pathlib.Path("few.de").write_text(
        "".join(f"{source}\n" for source, _ in pairs[:10]) + "eins zwei drei\n" * 20
    )
    sizes = ["num_layers=1", "d_model=8", "d_ff=8", "num_heads=1"]
    main(
        [
            *("train", "--model-dir", "model", "--config", "demo", "--valid-size", "25"),
            *("--source", "?.en.*", "few.en", "--target", "?.de.*", "few.de"),
            *(
                "--set",
                "data.weights=[1, 3]",
                "data.remove_copies=true",
                *(f"model.{size}" for size in sizes),
            ),
            *(
                "--set",
                "tokenizer.vocab_size=400",
                "training.steps=1",
                "training.precision=float32",
            ),
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
    data = DataConfig(weights=[1, 3], remove_copies=True, normalize="nfc")
    assert ModelDir("model").read_config().data == data


@pytest.fixture
def translate(tiny_model_dir, tmp_path, monkeypatch, capsys):
    """Runs the command in this process with a text as standard input; returns what it writes to the
    two streams."""

    def translate(text, *options):
        (tmp_path / "source").write_bytes(text)
        with open(tmp_path / "source") as file:
            monkeypatch.setattr("sys.stdin", file)
            main(["translate", "--model-dir", str(tiny_model_dir), *map(str, options)])
        return capsys.readouterr()

    return translate


def test_translate_answers_every_line_with_one_line(translator, translate):
    lines = [
        b"Anna sees a tree.",
        b"",
        b"the dog buys two apples.",
        b"\xff\xfe",
        b"  ",
        b"x" * 5000,
    ]
    output = translate("\ufeff".encode() + b"\n".join(lines) + b"\n")
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
    lines = [
        "Anna sees a tree. Anna buys two apples.",
        "",
        "Zoë greets the bridge. " + "e" + "\u0301" * 500,
        "Mr. Anna. Zoë",
    ]
    # In bfloat16, the nonsense of line 3 has another translation.
    options = ("--documents", "--language", "en", "--precision", "float32")
    output = translate("\n".join(lines).encode() + b"\n", *options)
    answers = output.out.split("\n")
    assert answers.pop() == ""
    actual = translator.translate_document(lines, "en")
    assert answers == [result.text.replace("\n", " ") for result in actual]
    said = [line for line in output.err.splitlines() if "a part was not translated" in line]
    assert said == [
        "line 3: a part was not translated: a document may have at most 200 sentences and 8,192 tokens, "
        "and a character at most the model's 64 tokens"
    ]


@pytest.mark.slow
def test_translate_with_prefixes_and_sampling(translate, tmp_path, monkeypatch, capsys):
    lines = ["Anna sees a tree."] * 3 + ["", "the dog buys two apples."]

    def answers_with(*options):
        # Not splitlines(): what is drawn may have other line separators.
        return translate("\n".join(lines).encode() + b"\n", *options).out.split("\n")[:-1]

    prefix = tmp_path / "prefix"
    prefix.write_text("\ufeff\nZo\u00eb\nAnna hat zwei\n\nder Hund")
    answers = answers_with("--prefix", prefix)
    assert answers[0] == "Anna hat einen Baum, sieht!" and answers[3] == ""
    assert answers[1].startswith("Zo\u00eb") and answers[2].startswith("Anna hat zwei")
    arguments = ("--sample", "--temperature", 3, "--top-p", 0.99)
    samples = answers_with(*arguments, "--seed", 5)
    assert samples != answers_with(*arguments, "--seed", 6)
    assert len(set(samples[:3])) == 3 and samples[3] == ""
    monkeypatch.setattr("keras_transformer.commands.translate.LINES_PER_BLOCK", 2)
    assert answers_with(*arguments, "--seed", 5) == samples
    for content, said in (("a\n" * 4, "it has only 4"), ("a\n" * 6, "it has more")):
        prefix.write_text(content)
        with pytest.raises(SystemExit):
            answers_with("--prefix", prefix)
        assert (
            f"{prefix}: the file must have as many lines as the source; {said}"
            in capsys.readouterr().err
        )


@pytest.mark.slow
def test_translate_n_best_gives_number_score_and_translation(translate):
    output = translate(b"Anna sees a tree.\n", "--n-best", 2, "--beam-size", 3)
    rows = [line.split("\t") for line in output.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1"]
    assert float(rows[0][1]) >= float(rows[1][1])
    assert rows[0][2] == "Anna hat einen Baum, sieht!" != rows[1][2]


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
    assert result["bleu"]["score"] == pytest.approx(100) and result["bleu"][
        "interval"
    ] == pytest.approx(0)
    assert "tok:13a" in result["bleu"]["signature"] and set(result) == {"bleu", "chrf"}


def test_score_prefers_the_known_translation(tiny_model_dir, known_pairs, text, capsys):
    def scores(target):
        source = known_pairs["--source"]
        main(["score", "--model-dir", str(tiny_model_dir), "--source", source, "--target", target])
        return [float(line) for line in capsys.readouterr().out.splitlines()]

    right = scores(known_pairs["--reference"])
    wrong = scores(
        text("wrong.de", "der Hund hat zwei Äpfel, kauft!\nAnna hat einen Baum, sieht!\n")
    )
    assert len(right) == 2 and all(0 >= score > other for score, other in zip(right, wrong))
    # The same pairs in one file.
    lines = [pathlib.Path(path).read_text().splitlines() for path in known_pairs.values()]
    pairs = text("pairs.tsv", "".join(f"{source}\t{target}\n" for source, target in zip(*lines)))
    main(["score", "--model-dir", str(tiny_model_dir), "--pairs", pairs])
    assert [float(line) for line in capsys.readouterr().out.splitlines()] == right


def test_evaluate_and_score_say_which_lines_they_cut(tiny_model_dir, text, capsys):
    source, target = (
        text("a.en", ENGLISH + "x" * 100 + "\n"),
        text("a.de", "y" * 100 + "\n" + GERMAN),
    )
    main(["score", "--model-dir", str(tiny_model_dir), "--source", source, "--target", target])
    said = [line for line in capsys.readouterr().err.splitlines() if "truncated" in line]
    assert len(said) == 2 and all(
        line.endswith("too many tokens, truncated to model.max_length=64") for line in said
    )
    assert said[0].startswith(f"{source}, line 3: ") and said[1].startswith(f"{target}, line 1: ")
    main(
        ["evaluate", "--model-dir", str(tiny_model_dir), "--source", source, "--reference", target]
    )
    said = [line for line in capsys.readouterr().err.splitlines() if "truncated" in line]
    assert len(said) == 1 and said[0].startswith(f"{source}, line 3: ")


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


def test_translate_reads_and_writes_files(translator, translate, tiny_model_dir, tmp_path, capsys):
    expected = translate(b"Anna sees a tree.\nZo\xc3\xab buys two apples.").out
    source, output = tmp_path / "source", tmp_path / "new" / "target"
    command = ["translate", "--model-dir", str(tiny_model_dir)]
    main([*command, "--source", str(source), "--output", str(output)])
    assert output.read_text("utf-8") == expected and capsys.readouterr().out == ""
    assert [path.name for path in output.parent.iterdir()] == ["target"]
    main([*command, "--source", str(source)])
    assert capsys.readouterr().out == expected


def test_translate_never_writes_over_a_file_unasked(tiny_model_dir, fails, text):
    source, output = text("source", ["a"]), text("target", ["mine"])
    model = ("translate", "--model-dir", tiny_model_dir)
    message = fails(*model, "--source", source, "--output", output)
    assert message.endswith("the file exists already; write to another one, or give --overwrite")
    message = fails(*model, "--source", source, "--output", source, "--overwrite")
    assert message.endswith("this file is read as --source; choose another output file")
    message = fails(*model, "--source", text("a.gz", ["a"]))
    assert "--source must not be compressed; decompress it: gzip -dc " in message


def test_scores_are_one_json_object_if_asked(tiny_model_dir, known_pairs, capsys):
    source, target = known_pairs.values()
    command = ["score", "--model-dir", str(tiny_model_dir), "--source", source, "--target", target]
    main(command)
    lines = capsys.readouterr().out.splitlines()
    main([*command, "--json"])
    assert json.loads(capsys.readouterr().out) == {"log_prob": [*map(float, lines)]}


def test_a_script_that_the_vocabulary_does_not_have_is_named_once(translator, translate):
    texts = "Anna sees 木.\n狗在公园里跑。\nสุนัข\n"
    said = [line for line in translate(texts.encode()).err.splitlines() if "vocabulary" in line]
    assert [line.partition(": ")[2] for line in said] == [
        "line 2: the model's vocabulary has 0 of the 6 letters (Han); expect a poor translation of "
        "such lines"
    ]


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
