"""The command `synthesize`: what it writes, from what files, and after an interruption."""

import gzip

import pytest
import sacrebleu
import zstandard
from conftest import sentence_pairs

from keras_transformer import Translator
from keras_transformer.commands.main import main
from keras_transformer.training.synthesis import translated_pairs
from keras_transformer.training.synthesis.translated_pairs import most_like

PAIRS = sentence_pairs()
ENGLISH, GERMAN = (list(side) for side in zip(*PAIRS, strict=True))


def lines_of(path):
    return path.read_text("utf-8").splitlines()


def run(model_dir, output, *arguments):
    main(
        ["synthesize", "--model-dir", str(model_dir), "--output", str(output), *map(str, arguments)]
    )
    return lines_of(output.with_name(f"{output.name}.source")), lines_of(
        output.with_name(f"{output.name}.target")
    )


@pytest.fixture
def mono(tmp_path):
    """Two compressed files, as a pattern; a line is blank, and one is longer than the model
    reads."""
    text = [*ENGLISH[:20], " ", "the dog " * 100, *ENGLISH[20:]]
    (tmp_path / "mono.1.zst").write_bytes(
        zstandard.compress("".join(f"{line}\n" for line in text[:30]).encode())
    )
    (tmp_path / "mono.2.gz").write_bytes(
        gzip.compress("".join(f"{line}\n" for line in text[30:]).encode())
    )
    return tmp_path / "mono.*"


@pytest.mark.slow
def test_back_translations_become_sources(tiny_model_dir, mono, tmp_path, caplog):
    source, target = run(tiny_model_dir, tmp_path / "out" / "bt", "--target", mono)
    assert target == ENGLISH
    assert source == Translator.load(tiny_model_dir)(ENGLISH)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "bt.json",
        "bt.source",
        "bt.target",
    ]
    assert "48 sentence pairs (left out: 1 empty, 1 too long)" in caplog.text


@pytest.mark.slow
def test_an_interrupted_run_draws_what_it_would_have_drawn(
    tiny_model_dir, mono, tmp_path, monkeypatch
):
    monkeypatch.setattr(translated_pairs, "LINES_PER_BLOCK", 16)
    sampled = ("--target", mono, "--sample", "--top-k", 5, "--temperature", 2, "--seed", 3)
    whole = run(tiny_model_dir, tmp_path / "whole", *sampled)
    assert whole[0] != Translator.load(tiny_model_dir)(ENGLISH)
    translate = Translator.translate
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return translate(*arguments, **options)

    monkeypatch.setattr(Translator, "translate", interrupted)
    with pytest.raises(SystemExit) as stopped:
        run(tiny_model_dir, tmp_path / "resumed", *sampled)
    assert stopped.value.code == 130 and not (tmp_path / "resumed.source").exists()
    assert run(tiny_model_dir, tmp_path / "resumed", *sampled) == whole
    # Two blocks, the interrupted one, and the two that were left.
    assert len(calls) == 5


@pytest.mark.slow
def test_the_teacher_s_translation_that_is_most_like_the_reference(tiny_model_dir, text, tmp_path):
    translations = Translator.load(tiny_model_dir).n_best(ENGLISH, 3)
    # The third best, with a word that none has.
    references = [f"{n_best[2][0]} hier" for n_best in translations]
    files = text("train.en", ENGLISH), text("train.de", references)
    source, target = run(tiny_model_dir, tmp_path / "best", "--source", files[0])
    assert source == ENGLISH and target == [n_best[0][0] for n_best in translations]
    for metric, score in (
        ("bleu", sacrebleu.metrics.BLEU(effective_order=True)),
        ("chrf", sacrebleu.metrics.CHRF()),
    ):
        arguments = ("--source", files[0], "--target", files[1], "--n-best", 3, "--metric", metric)
        source, chosen = run(tiny_model_dir, tmp_path / metric, *arguments)
        assert source == ENGLISH and chosen != target
        for choice, n_best, reference in zip(chosen, translations, references, strict=True):
            scores = [
                score.sentence_score(translation, [reference]).score for translation, _ in n_best
            ]
            assert choice == n_best[scores.index(max(scores))][0]


def test_without_a_reference_and_among_equals_the_most_probable_is_chosen():
    chrf = sacrebleu.metrics.CHRF()
    assert most_like(" ", ["a", "b"], chrf) == "a"
    assert most_like("xyz", ["aaa", "bbb"], chrf) == "aaa"
    assert most_like("xyz", ["aaa", "xyz", "xyz"], chrf) == "xyz"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--target", "none"], "--target must be a file that exists"),
        (
            ["--target", "de", "--output", "out/"],
            "--output must be a path that ends in a name; received --output=",
        ),
        (["--target", "none.*"], "none.*: no file matches this pattern"),
        (["--target", "de", "--top-k", "5"], "--top-k needs --sample"),
        (["--target", "empty"], "the text is empty"),
        (["--source", "de", "--metric", "chrf"], "--metric needs --target"),
        (
            ["--source", "de", "--target", "de", "--n-best", "5"],
            "--n-best must be at most decoding.beam_size=4",
        ),
        (["--source", "de", "--target", "short"], "de has 48, short has 1"),
    ],
)
def test_bad_input_is_one_line(
    tiny_model_dir, text, fails, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    text("de", GERMAN), text("short", GERMAN[:1]), text("empty", [])
    assert message in fails(
        "synthesize", "--model-dir", tiny_model_dir, "--output", "out", *arguments
    )
    assert not list(tmp_path.glob("out*"))
