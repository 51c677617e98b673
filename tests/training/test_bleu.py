"""BLEU counts what the language of the references needs, and equals sacreBLEU's own command."""

import json
import logging
import subprocess
import sys

import pytest
import sacrebleu

from keras_transformer.commands.main import main
from keras_transformer.config.values import BLEU_TOKENIZERS
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training import bleu as module
from keras_transformer.training.bleu import choose_tokenizer, make_bleu
from keras_transformer.training.comparison.compare import System, compare, count_faults
from keras_transformer.training.evaluate import evaluate
from keras_transformer.training.text.corpus import SentencePairs

# Two sentences in each language: the first says that the dog sleeps in the garden today, the
# second that the children read a new book.
REFERENCES = {
    "German": ("13a", "Der Hund schläft heute im Garten.", "Die Kinder lesen ein neues Buch."),
    "Finnish": ("13a", "Koira nukkuu tänään puutarhassa.", "Lapset lukevat nyt uutta kirjaa."),
    "Russian": ("13a", "Собака сегодня спит в саду.", "Дети сейчас читают новую книгу."),
    "Arabic": ("13a", "ينام الكلب اليوم في الحديقة.", "يقرأ الأطفال الآن كتابا جديدا."),
    "Hindi": ("13a", "कुत्ता आज बगीचे में सो रहा है।", "बच्चे एक नई किताब पढ़ रहे हैं।"),
    "Chinese": ("zh", "这只狗今天在花园里睡觉。", "孩子们正在读一本新书。"),
    "Japanese": ("ja-mecab", "犬は今日、庭で寝ています。", "子供たちは新しい本を読んでいます。"),
    "Korean": ("ko-mecab", "개가 오늘 정원에서 자고 있다.", "아이들이 새 책을 읽고 있다."),
    "Thai": ("char", "วันนี้สุนัขนอนอยู่ในสวน", "เด็กๆกำลังอ่านหนังสือเล่มใหม่"),
    "Lao": ("char", "ມື້ນີ້ໝານອນຢູ່ໃນສວນ", "ເດັກນ້ອຍກຳລັງອ່ານປຶ້ມໃໝ່"),
    "Khmer": ("char", "ថ្ងៃនេះឆ្កែដេកនៅក្នុងសួន។", "ក្មេងៗកំពុងអានសៀវភៅថ្មី។"),
    "Burmese": ("char", "ဒီနေ့ခွေးကဥယျာဉ်ထဲမှာအိပ်နေတယ်။", "ကလေးတွေကစာအုပ်အသစ်ဖတ်နေတယ်။"),
    "Tibetan": ("char", "དེ་རིང་ཁྱི་དེ་ལྡུམ་རའི་ནང་ཉལ་གྱི་འདུག", "ཕྲུ་གུ་ཚོས་དེབ་གསར་པ་ཞིག་ཀློག་གི་འདུག"),
}


@pytest.mark.parametrize("language", REFERENCES)
def test_a_reference_against_itself_has_100(language, caplog):
    caplog.set_level(logging.INFO)
    tokenizer, *references = REFERENCES[language]
    pairs = SentencePairs(["a", "b"], references, name="invented")
    result = evaluate(lambda texts: references, pairs)
    assert result.bleu.score == pytest.approx(100)
    assert result.chrf.score == pytest.approx(100)
    assert f"|tok:{tokenizer}" in result.bleu.signature
    (line,) = [record.getMessage() for record in caplog.records if "BLEU" in record.getMessage()]
    assert tokenizer in line


@pytest.mark.parametrize("language", ["Chinese", "Japanese", "Korean", "Thai", "German"])
def test_scores_of_imperfect_systems_are_those_of_sacrebleus_command(language, text):
    tokenizer, first, second = REFERENCES[language]
    references = [first, second] * 2
    systems = [
        [first, first, second, second],
        [second, first[:-2], first, second],
        [first[: len(first) // 2], second[1:], first + second, second],
    ]
    pairs = SentencePairs(["a"] * 4, references, name="invented")
    compared = compare([System(str(place), lines) for place, lines in enumerate(systems)], pairs)
    reference = text("reference", references)
    for place, lines in enumerate(systems):
        command = [sys.executable, "-m", "sacrebleu", reference, "-i", text(str(place), lines)]
        command += ["--metrics", "bleu", "--tokenize", tokenizer, "--format", "json", "-w", "6"]
        output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
        expected = json.loads(output)["score"]
        assert 0 < expected < 100
        assert compared.results[place].scores["BLEU"].score == pytest.approx(expected, abs=1e-6)


def test_a_good_and_a_bad_chinese_system_differ_significantly():
    _, first, second = REFERENCES["Chinese"]
    pairs = SentencePairs(["a"] * 20, [first, second] * 10, name="invented")
    garbage = System("garbage", ["红狗" * 3] * 20)
    result = compare([System("perfect", [first, second] * 10), garbage], pairs).results[1]
    assert result.scores["BLEU"].gain < -90
    assert result.scores["BLEU"].p_value < 0.01
    assert result.faults.repetitions == 1


@pytest.mark.parametrize(
    ("tokenizer", "text", "repeats"),
    [
        ("13a", "ein Hund, ein Hund", True),
        ("13a", "Ein Hund und ein Hund", False),
        ("13a", "a b c d a b c d", True),
        ("13a", "a b c d e a b c d e", False),
        ("13a", "12,000,000", False),
        ("none", "nein nein", True),
        ("zh", "红狗红狗红狗", True),
        ("zh", "谢谢", False),
        ("zh", "哈哈哈", True),
        ("zh", "红色的，红色的", True),
        ("zh", "狗 good good 狗", True),
        ("ja-mecab", "とても、とても", True),
        ("char", "นานา", False),
        ("char", "สุนัขสุนัข", True),
        ("zh", "", False),
    ],
)
def test_repetitions_are_of_what_the_metric_counts(tokenizer, text, repeats):
    faults = count_faults(["a"], ["b"], [text], make_bleu(tokenizer))
    assert faults.repetitions == repeats
    # A repetition that the reference has is no fault.
    assert count_faults(["a"], [text], [text], make_bleu(tokenizer)).repetitions == 0


def test_lengths_are_of_what_the_metric_counts():
    pairs = SentencePairs(["a"], ["一本新书"], name="invented")
    assert compare([System("half", ["新书"])], pairs).results[0].length_ratio == 0.5


def test_the_names_are_those_of_sacrebleu():
    assert set(BLEU_TOKENIZERS) == set(sacrebleu.metrics.BLEU.TOKENIZERS) - {"spBLEU-1K"}


def test_a_missing_package_is_named(monkeypatch, caplog, text, fails):
    def without_package(tokenize, **options):
        if tokenize in ("ja-mecab", "ko-mecab"):
            raise RuntimeError("several\nlines")
        return original(tokenize=tokenize, **options)

    original = sacrebleu.metrics.BLEU
    monkeypatch.setattr(module.sacrebleu.metrics, "BLEU", without_package)
    line = fails(
        *("compare", "--source", text("a.en", ["dog"]), "--reference", text("a.ko", ["개"])),
        *("--hypotheses", text("b.ko", ["개"]), "--tokenize", "ko-mecab"),
    )
    assert "pip install 'sacrebleu[ko]'" in line
    caplog.set_level(logging.INFO)
    assert choose_tokenizer(REFERENCES["Japanese"][1:]) == "char"
    assert "pip install 'sacrebleu[ja]'" in caplog.text


@pytest.mark.parametrize("tokenizer", ["spm", "flores101", "flores200"])
def test_a_model_that_cannot_be_downloaded_ends_in_one_line(tokenizer, monkeypatch):
    def no_network(*arguments, **options):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", "/nonexistent/folder")
    with pytest.raises(ConfigError, match=f"model of the tokenizer {tokenizer} "):
        make_bleu(tokenizer)


def test_compare_says_the_tokenizer_and_both_scores(text, capsys):
    _, first, second = REFERENCES["Chinese"]
    source, reference = text("a.en", ["a", "b"]), text("a.zh", [first, second])
    same = text("b.zh", [first, second])
    main(["compare", "--source", source, "--reference", reference, "--hypotheses", same])
    output = capsys.readouterr()
    assert "BLEU uses the tokenizer zh: the references are Chinese" in output.err
    assert "tok:zh" in output.out
    assert output.out.count("100.00") == 2


def test_a_training_run_keeps_its_tokenizer(text, fails, tmp_path, capsys):
    _, *targets = REFERENCES["Chinese"]
    lines = {"source": ["dog one", "dog two"] * 4, "target": targets * 4}
    arguments = [
        item
        for side, content in lines.items()
        for name in (f"--{side}", f"--valid-{side}")
        for item in (name, text(f"{name}.txt", content))
    ]
    settings = ["training.steps=1", "training.validate_every=1", "training.tokens_per_batch=64"]
    settings += ["training.validate_by=bleu", "tokenizer.vocab_size=304", "model.num_layers=1"]
    settings += ["training.average_last=0"]
    settings += ["model.d_model=8", "model.d_ff=8", "model.num_heads=2"]
    arguments += ["--model-dir", tmp_path / "model"]
    arguments += [item for setting in settings for item in ("--set", setting)]
    main(["train", *map(str, arguments)])
    assert ModelDir(tmp_path / "model").read_config().training.bleu_tokenizer == "zh"
    header = ModelDir(tmp_path / "model").log_path.read_text().splitlines()[0]
    assert "val_bleu" in header and "val_chrf" in header
    capsys.readouterr()
    line = fails("train", *arguments, "--set", "training.bleu_tokenizer=13a")
    assert "training.bleu_tokenizer must be 'zh'" in line
