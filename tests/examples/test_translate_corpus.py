"""The corpus example on Apache Beam: one output line per input line, in order, for all files, also
after a kill.

It needs the extra `beam`, whose packages do not fit beside those of the extra `test`: `make
test-beam` runs it.
"""

import bz2
import gzip
import lzma
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf
import zstandard
from conftest import sentence_pairs

from examples import translate_corpus
from keras_transformer import Translator
from keras_transformer.config import DecodingConfig
from keras_transformer.export.servable import export_servable

ROOT = pathlib.Path(__file__).resolve().parents[2]
SENTENCES = [source for source, _ in sentence_pairs()]
LINES = "\n".join(SENTENCES[:7]).encode() + b"\n"
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
DECOMPRESS = {
    "": bytes,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    # Beam does not write the size into the file.
    ".zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.fixture(scope="module")
def translator(tiny_model_dir):
    return Translator.load(tiny_model_dir, DecodingConfig(beam_size=1, max_extra_tokens=10))


@pytest.fixture(scope="module")
def saved_model(translator, tmp_path_factory):
    return export_servable(
        translator, tmp_path_factory.mktemp("servable"), signatures=["serving_default"]
    )


@pytest.fixture
def corpus(tmp_path):
    directory = tmp_path / "corpus"
    directory.mkdir()
    return directory


@pytest.fixture
def run(saved_model, tmp_path, monkeypatch):
    """Runs the pipeline in this process, with pieces of three lines and requests of two."""
    monkeypatch.setattr(translate_corpus, "LINES_PER_PIECE", 3)
    monkeypatch.setattr(translate_corpus, "LINES_PER_REQUEST", 2)

    def run(*patterns, model=saved_model, output=tmp_path / "out"):
        translate_corpus.main(
            ["--model", str(model), "--output", str(output), "--input", *map(str, patterns)]
        )
        return output

    return run


def content(path):
    return DECOMPRESS[path.suffix if path.suffix in DECOMPRESS else ""](path.read_bytes())


def translated(translator, text):
    r"""What `keras-transformer translate` answers: lines end at "\n" alone, the last one needs
    none."""
    lines = text.split(b"\n")
    lines = [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]
    return (
        "".join(line.replace("\n", " ") + "\n" for line in translator(lines)).encode()
        if lines
        else b""
    )


TEXTS = {
    "empty": b"",
    "an empty line": b"\n",
    "empty lines": b"\n\nAnna sees a tree.\n\n\n\n",
    "a piece exactly": b"".join(LINES.splitlines(keepends=True)[:3]),
    "some pieces": LINES,
    "no end of the last line": LINES[:-1],
    "line ends of Windows": LINES.replace(b"\n", b"\r\n"),
    "other line ends": "Anna sees\u2028a tree.\vZoë\fbuys\u0085a tree.\r the dog\rbuys\n".encode()
    + b"the dog\r\r\n\r",
    "not UTF-8": b"\xff\xfe paints \xe2\x82 the bridge.\n\0\n" + LINES,
    "long": b"the dog buys two apples. " * 40 + b"\n" + LINES,
}


def test_each_line_has_its_translation_whatever_the_text(translator, run, corpus):
    for name, text in TEXTS.items():
        (corpus / f"{name}.en").write_bytes(text)
    output = run(corpus / "*.en")
    assert {path.name: path.read_bytes() for path in output.iterdir()} == {
        f"{name}.en": translated(translator, text) for name, text in TEXTS.items()
    }


def test_a_file_is_on_the_disk_before_it_gets_its_name(run, corpus, monkeypatch):
    (corpus / "a").write_bytes(LINES)
    (corpus / "b.gz").write_bytes(gzip.compress(LINES))
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number)))
    output = run(corpus / "*")
    files = [(path.stat().st_ino, path.stat().st_size) for path in output.iterdir()]
    # Three pieces of each file, then the file itself.
    assert len(synced) == 8 and set(files) <= {(file.st_ino, file.st_size) for file in synced}


def test_a_compressed_file_becomes_a_compressed_file_of_the_same_name(translator, run, corpus):
    for number, (suffix, compress) in enumerate(COMPRESS.items()):
        # Two compressed files after each other are one.
        (corpus / f"{number}.txt{suffix}").write_bytes(compress(LINES) + compress(LINES))
    output = run(corpus / "[0-2]*", corpus / "[3-4]*", corpus / "1*")
    assert sorted(path.name for path in output.iterdir()) == sorted(
        path.name for path in corpus.iterdir()
    )
    assert {content(path) for path in output.iterdir()} == {translated(translator, LINES * 2)}


def test_a_translation_with_a_line_end_stays_one_line():
    def signature(text):
        return {"text": tf.strings.join([text, "\nb"])}

    assert list(translate_corpus.translate(signature, [[b"a", b"c"], []])) == [[b"a b", b"c b"], []]


def state(directory):
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in directory.rglob("*")}


def test_files_and_pieces_that_are_there_are_not_translated_again(translator, run, corpus):
    (corpus / "a").write_bytes(LINES)
    output = run(corpus / "a")
    before = state(output)
    (corpus / "b").write_bytes(LINES)
    there = {
        # Of seven lines, the first three and the last.
        ".b/00000000-3": b"1\n2\n3\n",
        ".b/00000002-3": b"7\n",
        # A file that was being written, a piece of another size, and one of a file that is
        # complete.
        ".b/unfinished-0f-00000001-3": b"half a li",
        ".b/00000001-2": b"3\n4\n",
        ".a/00000001-3": b"4\n5\n6\n",
    }
    for name, text in there.items():
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).write_bytes(text)
    run(corpus / "*")
    lines = translated(translator, LINES).splitlines(keepends=True)
    assert (output / "b").read_bytes() == b"1\n2\n3\n" + b"".join(lines[3:6]) + b"7\n"
    after = state(output)
    assert after.keys() == {output / "a", output / "b"}
    assert after.items() >= before.items()


def test_a_compressed_file_that_is_cut_off_is_named(run, corpus):
    for suffix, compress in COMPRESS.items():
        if suffix:
            path = corpus / f"cut{suffix}"
            path.write_bytes(compress(LINES)[:-9])
            with pytest.raises(Exception, match=f"{path}: the compressed file is cut off"):
                run(path)


@pytest.mark.parametrize(
    "name", ["no model", "no input", "a directory", "same names", "same directory", "a file"]
)
def test_a_wrong_path_is_one_line(name, saved_model, run, corpus, tmp_path):
    (corpus / "a").write_bytes(LINES)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a").write_bytes(LINES)
    arguments, options, expected = {
        "no model": (
            (corpus / "a",),
            {"model": saved_model.parent},
            f"--model must .*{saved_model.parent}",
        ),
        "no input": (
            (corpus / "a", corpus / "b*"),
            {},
            f"--input must match files; received --input {corpus}/b\\*",
        ),
        "a directory": ((corpus,), {}, f"--input must match files; received --input {corpus}"),
        "same names": (
            (f"{tmp_path}/*/a",),
            {},
            f"different names; received --input {corpus}/a and {tmp_path}/other/a",
        ),
        "same directory": (
            (corpus / "a",),
            {"output": f"{corpus}/../corpus"},
            "--output must not be the directory of",
        ),
        "a file": (
            (corpus / "a",),
            {"output": corpus / "a"},
            f"--output must be a directory; .*{corpus}/a",
        ),
    }[name]
    with pytest.raises(SystemExit, match=f"error: .*{expected}") as exit:
        run(*arguments, **options)
    assert "\n" not in str(exit.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "other"]


def test_two_processes_that_are_killed_and_started_again_translate_each_line_once(
    translator, saved_model, tiny_model_dir, corpus, tmp_path
):
    # A piece of 10,000 lines and one of 2,000 of each file.
    lines = random.Random(1).choices(SENTENCES, k=24_000)
    for number in range(2):
        text = "".join(f"{line}\n" for line in lines[number * 12_000 : (number + 1) * 12_000])
        (corpus / f"{number}.en").write_text(text, encoding="utf-8")
    # The SavedModel needs nothing of this package.
    (tmp_path / "keras_transformer.py").write_text("raise ImportError")
    output = tmp_path / "out"
    command = [
        sys.executable,
        "examples/translate_corpus.py",
        "--model",
        saved_model,
        "--output",
        output,
    ]
    command += [
        "--input",
        f"{corpus}/*",
        "--direct_running_mode=multi_processing",
        "--direct_num_workers=2",
    ]
    start = {
        "args": list(map(str, command)),
        "cwd": ROOT,
        "env": {**os.environ, "PYTHONPATH": str(tmp_path)},
    }
    process = subprocess.Popen(**start, start_new_session=True)
    while process.poll() is None and len(list(output.glob(".*/[0-9]*"))) < 1:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    pieces = list(output.glob(".*/[0-9]*"))
    assert 1 <= len(pieces) < 4 and not list(output.glob("[0-9].en"))
    # Whoever translated it again would lose this.
    marked = pieces[0]
    marked.write_bytes(b"*" + marked.read_bytes())
    subprocess.run(**start, check=True)

    assert sorted(path.name for path in output.iterdir()) == ["0.en", "1.en"]
    expected = dict(zip(SENTENCES, translator(SENTENCES)))
    expected = [expected[line] for line in lines]
    begin = int(marked.parent.name[1]) * 12_000 + int(marked.name.split("-")[0]) * 10_000
    expected[begin] = "*" + expected[begin]
    written = "".join((output / f"{number}.en").read_text(encoding="utf-8") for number in range(2))
    assert written == "".join(f"{line}\n" for line in expected)
