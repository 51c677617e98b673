"""Corpora in all input formats: compressed, in shards, in several files, and as pairs on the lines
of one file."""

import gzip
import itertools
import json
import lzma
import pathlib
import subprocess
import sys

import pytest
import zstandard

from keras_transformer.errors import Error
from keras_transformer.text import FORMATS, open_corpora, read_lines
from keras_transformer.training.text.corpus import read_text

COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}
CONTENT = "\ufeffein Bär\u2028\r\n🐻\n".encode() + b"".join(
    b"%d\n" % (i * i) for i in range(50_000)
)


def message_of(function, *args):
    with pytest.raises(Error) as raised:
        function(*args)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def read(corpora):
    pairs, _ = read_text(corpora)
    assert len(pairs) == len(list(pairs.source)) == len(list(pairs.target))
    return list(zip(pairs.source, pairs.target))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_reads_as_its_content_does(tmp_path, suffix):
    plain, packed, divided = (
        tmp_path / name for name in ("text", f"text.{suffix}", f"divided.{suffix}")
    )
    plain.write_bytes(CONTENT)
    packed.write_bytes(COMPRESS[suffix](CONTENT))
    divided.write_bytes(COMPRESS[suffix](CONTENT[:1000]) + COMPRESS[suffix](CONTENT[1000:]))
    lines = list(read_lines(plain))
    assert lines[:2] == ["ein Bär\u2028", "🐻"] and len(lines) == 50_002
    assert list(read_lines(packed)) == list(read_lines(divided)) == lines


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_compressed_file_that_is_cut_off_or_damaged_is_named(tmp_path, suffix):
    whole = COMPRESS[suffix](CONTENT)
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 9] = b"\xff" * 9
    path = tmp_path / f"text.{suffix}"
    for content in (
        b"a plain text\n",
        whole[: len(whole) // 2],
        whole[:-6],
        whole[:3],
        bytes(damaged),
    ):
        path.write_bytes(content)
        assert message_of(list, read_lines(path)).startswith(f"{path}: ")


@pytest.mark.parametrize("between, end", [(4, 0), (512, 512), (4 * 70_000, 4)])
def test_zeros_between_the_streams_of_an_xz_file_are_padding(tmp_path, between, end):
    path = tmp_path / "text.xz"
    first, second = lzma.compress(b"a\n" * 1000), lzma.compress(b"b\n" * 1000)
    path.write_bytes(first + bytes(between) + second + bytes(end))
    assert list(read_lines(path)) == ["a"] * 1000 + ["b"] * 1000


@pytest.mark.parametrize("suffix", COMPRESS)
def test_nothing_after_the_first_part_of_an_archive_is_dropped(tmp_path, suffix):
    path = tmp_path / f"text.{suffix}"
    first, second = COMPRESS[suffix](b"a\n" * 1000), COMPRESS[suffix](b"b\n" * 1000)
    damaged = b"\xff" * 4 + second[4:]
    for rest in (damaged, second[:3], second[:-5], b"g", b"garbage!", bytes(4) + b"junk"):
        path.write_bytes(first + rest)
        assert message_of(list, read_lines(path)).startswith(f"{path}: ")


def test_padding_of_an_xz_file_is_a_multiple_of_four(tmp_path):
    path = tmp_path / "text.xz"
    for padding in (1, 3, 5):
        path.write_bytes(lzma.compress(b"a\n") + bytes(padding))
        assert f"multiple of four; received {padding}" in message_of(list, read_lines(path))


def test_a_long_run_of_the_same_line_is_read_from_a_small_file(tmp_path):
    (tmp_path / "text.zst").write_bytes(COMPRESS["zst"](b"a\n" * 3_000_000))
    assert sum(1 for _ in read_lines(tmp_path / "text.zst")) == 3_000_000


def lines_of_many_lengths():
    """Lines with lengths around those of a read and of the limit, and with several ends."""
    lengths = [0, 1, 2, 65533, 65534, 65535, 65536, 65537, 131071, 131072, 2**20 - 1, 2**20]
    ends = [b"\n", b"\r\n", b"\r\r\n"]
    return [
        bytes([97 + i % 26]) * length + end
        for i, (length, end) in enumerate(itertools.product(lengths, ends))
    ]


@pytest.mark.parametrize("mark", [b"", "\ufeff".encode()])
@pytest.mark.parametrize("suffix", ["txt", *COMPRESS])
def test_lines_of_any_length_up_to_the_limit_are_read_whole(tmp_path, suffix, mark):
    lines = [line for line in lines_of_many_lengths() if len(line) < 2**20 + 3]
    path = tmp_path / f"text.{suffix}"
    path.write_bytes(COMPRESS.get(suffix, bytes)(mark + b"".join(lines) + b"the last\r"))
    expected = [line.removesuffix(b"\n").removesuffix(b"\r").decode() for line in lines]
    assert list(read_lines(path)) == [*expected, "the last"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\nnext\n"])
def test_a_line_may_have_a_mebibyte_and_no_more(tmp_path, end):
    path = tmp_path / "text"
    path.write_bytes(b"first\n" + b"x" * 2**20 + end)
    assert [len(line) for line in read_lines(path)][:2] == [5, 2**20]
    path.write_bytes(b"first\n" + b"x" * (2**20 + 1) + end)
    assert (
        message_of(list, read_lines(path))
        == f"{path}: line 2 must have at most 1,048,576 bytes; it has more"
    )


def test_lines_before_one_that_is_not_utf8_are_read(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"one\ntw\xc3\nthree\n")
    lines = iter(read_lines(path))
    assert next(lines) == "one"
    assert message_of(next, lines) == (
        f"{path}: line 2 is not valid UTF-8: unexpected end of data 0xc3 at byte 3 of the line"
    )


HOSTILE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (800 << 20, 800 << 20))
from keras_transformer.commands.main import main
main(sys.argv[1:])
"""


def run_with_little_memory(*arguments):
    return subprocess.run(
        [sys.executable, "-c", HOSTILE, *arguments], capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_gigabyte_of_zeros_in_a_small_file_is_refused_with_little_memory(tmp_path, suffix):
    path = tmp_path / f"zeros.{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(2**24)) * 64)
    result = run_with_little_memory("check-data", "--pairs", path)
    assert (result.returncode, result.stderr.splitlines()[-1]) == (
        1,
        f"keras-transformer check-data: error: {path}: line 1 must have at most 1,048,576 bytes; "
        f"it has more",
    )


@pytest.mark.slow
def test_many_long_lines_take_little_memory(tmp_path):
    line = b"x" * (2**19 - 1)
    (tmp_path / "text.zst").write_bytes(COMPRESS["zst"](line + b"\t" + line + b"\n") * 1000)
    result = run_with_little_memory("check-data", "--pairs", tmp_path / "text.zst", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)["training"]
    assert (report["pairs"], report["characters"]["target"]["mean"]) == (1000, 2**19 - 1)


@pytest.mark.slow
def test_a_line_that_never_ends_is_refused_with_little_memory(tmp_path):
    text = tmp_path / "text"
    text.write_text("one\n")
    for arguments in (
        ("check-data", "--source", text, "--target", "/dev/zero"),
        (
            "train",
            "--source",
            "/dev/zero",
            "--target",
            text,
            "--valid-size",
            "1",
            "--model-dir",
            tmp_path / "model",
        ),
    ):
        result = run_with_little_memory(*arguments)
        message = "error: /dev/zero: line 1 must have at most 1,048,576 bytes; it has more"
        assert (result.returncode, result.stderr.splitlines()[-1]) == (
            1,
            f"keras-transformer {arguments[0]}: {message}",
        )
    assert not (tmp_path / "model").exists()


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(**contents):
        for name, content in contents.items():
            (tmp_path / name.replace("_", ".")).write_text(content)

    return write


def test_the_files_of_a_pattern_are_one_corpus_in_the_order_of_their_names(write):
    write(
        b1_en="three\n",
        a2_en="two\n",
        a1_en="one\n",
        b1_de="drei\n",
        a2_de="zwei\n",
        a1_de="eins\n",
    )
    corpora = open_corpora(["*.en"], ["??.de"])
    assert [corpus.name for corpus in corpora] == ["*.en, ??.de"]
    assert read(corpora) == [("one", "eins"), ("two", "zwei"), ("three", "drei")]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(write, tmp_path):
    (tmp_path / "a[1].en").write_text("itself\n")
    write(a1_en="another\n", a1_de="selbst\n")
    assert read(open_corpora(["a[1].en"], ["a[1].de"])) == [("itself", "selbst")]


def test_several_files_are_several_corpora(write):
    write(a_en="one\n", a_de="eins\n", b_en="two\nthree\n", b_de="zwei\ndrei\n")
    corpora = open_corpora(["a.en", "b.en"], ["a.de", "b.de"])
    assert [corpus.name for corpus in corpora] == ["a.en, a.de", "b.en, b.de"]
    assert read(corpora) == [("one", "eins"), ("two", "zwei"), ("three", "drei")]


def test_what_does_not_pair_up_is_named(write):
    write(a1_en="", a2_en="", a3_en="", a1_de="", a3_de="", a4_de="", b1_de="", b2_de="")
    message = message_of(open_corpora, ["a[123].en"], ["a[13].de"])
    assert message == (
        "the files of source and target must pair up: a[123].en matches 3, a[13].de matches 2; "
        "without a partner: a2.en"
    )
    # As many, but others.
    assert message_of(open_corpora, ["a*.en"], ["a*.de"]).endswith(
        "without a partner: a2.en, a4.de"
    )
    # The names have nothing in common.
    assert message_of(open_corpora, ["a?.en"], ["b1.de"]).endswith(
        "b1.de matches 1; without a partner: a2.en, a3.en"
    )
    assert message_of(open_corpora, ["a1.en"], ["c*.de"]) == "c*.de: no file matches this pattern"
    assert message_of(open_corpora, ["a1.en", "a2.en"], ["a1.de"]) == (
        "source and target must have the same number of files; received 2 (a1.en, a2.en) and 1 (a1.de)"
    )


def test_files_pair_up_by_what_stands_for_the_wildcards(write, tmp_path):
    # In the order of their names, 10 comes after 1 in one language and before it in the other.
    for number in ("1", "2", "10"):
        (tmp_path / f"a{number}.en").write_text(f"{number}\n")
        (tmp_path / f"a{number}_de").write_text(f"{number}\n")
    assert read(open_corpora(["a*.en"], ["a*_de"])) == [("1", "1"), ("10", "10"), ("2", "2")]
    (tmp_path / "en").mkdir()
    (tmp_path / "de").mkdir()
    for name in ("x", "y"):
        (tmp_path / "en" / f"{name}.en").write_text(name)
        (tmp_path / "de" / f"{name}.de").write_text(name)
    assert read(open_corpora(["en/*"], ["de/*"])) == [("x", "x"), ("y", "y")]
    # As of a directory that is given with a slash at its end.
    assert read(open_corpora(["en//*.en"], [".//de//?.de"])) == [("x", "x"), ("y", "y")]


def test_shards_with_different_numbers_of_lines_are_named(write):
    write(a1_en="one\n", a2_en="two\nthree\n", a1_de="eins\n", a2_de="zwei\ndrei\nvier\nfünf\n")
    message = message_of(read, open_corpora(["a*.en"], ["a*.de"]))
    assert message.endswith("must have the same number of lines: a2.en has 2, a2.de has 4")
    assert "a2.de has 4, a2.en has 2" in message_of(read, open_corpora(["a*.de"], ["a*.en"]))


def test_a_shard_may_be_empty_but_not_a_corpus(write):
    write(a1_en="", a2_en="two\n", a1_de="", a2_de="zwei\n")
    assert read(open_corpora(["a*.en"], ["a*.de"])) == [("two", "zwei")]
    assert (
        message_of(read, open_corpora(["a2.en", "a1.en"], ["a2.de", "a1.de"]))
        == "a1.en: the text is empty"
    )


def test_open_corpora_with_a_known_ending_reads_that_format_compressed_or_not(write, monkeypatch):
    write(a_up="one eins\ntwo zwei\n", b_tsv="three\tdrei\n")
    pathlib.Path("c.up.gz").write_bytes(gzip.compress(b"four vier\n"))

    def read_words(path):
        return [tuple(line.upper().split()) for line in read_lines(path)]

    monkeypatch.setitem(FORMATS, ".up", read_words)
    corpora = open_corpora(pairs=["a.up", "b.tsv", "c.up.gz"])
    assert [corpus.name for corpus in corpora] == ["a.up", "b.tsv", "c.up.gz"]
    assert read(corpora) == [("ONE", "EINS"), ("TWO", "ZWEI"), ("three", "drei"), ("FOUR", "VIER")]


def test_a_tab_separates_the_sentences_of_a_pair(write):
    write(a_tsv="one\teins\n\tzwei\nthree \t drei\r\n")
    assert read(open_corpora(pairs=["a.tsv"])) == [
        ("one", "eins"),
        ("", "zwei"),
        ("three ", " drei"),
    ]


@pytest.mark.parametrize("line", ["two", "two\tzwei\tzwo", ""])
def test_a_line_without_exactly_one_tab_is_named(write, line):
    write(a_tsv=f"one\teins\n{line}\n")
    message = message_of(read, open_corpora(pairs=["a.tsv"]))
    assert message == f"a.tsv: line 2 must have exactly one tab; received {line!r}"
