"""Translates a corpus with an exported SavedModel and Apache Beam, on one or many machines.

    python examples/translate_corpus.py --model servable/en-de/1 --input 'news/*.en.gz' --output
    news.de

For each input file, with one sentence per line, the script writes a file with the same name and
compression to the output directory, with exactly one output line per input line, in the same order.
To resume a run that was stopped, run the same command again: it translates only what is missing.
All other options are Beam's, such as --runner. docs/large-files.md has the commands for
several processes and for clusters.

    input files ─► pieces ─► lines ─► RunInference ─► one file per piece ─► output files
"""

import argparse
import glob
import itertools
import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import tensorflow as tf
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.ml.inference.tensorflow_inference import TFModelHandlerNumpy
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.util import WaitOn

# If a run is killed, at most one piece per process is lost.
LINES_PER_PIECE = 10_000
# The SavedModel sorts the sentences of a request by length, and translates sentences of similar
# length together.
LINES_PER_REQUEST = 1_000

# The input file, the output file, the number of the piece and its first byte. Only these are sent
# between machines.
Piece = tuple[str, str, int, int]


class SavedModelHandler(TFModelHandlerNumpy):
    """Beam's handler for TensorFlow, for a SavedModel with a signature instead of a Keras model."""

    def load_model(self) -> Any:
        import tensorflow_text  # noqa: F401

        return tf.saved_model.load(self._model_uri).signatures["serving_default"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the pipeline; a wrong path is reported in one line on standard error."""
    parser = argparse.ArgumentParser(
        description="Translate text files with an exported SavedModel on Apache Beam.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="a version of a SavedModel: servable/en-de/1"
    )
    parser.add_argument(
        "--input",
        required=True,
        nargs="+",
        metavar="PATTERN",
        help="text files, perhaps compressed",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="where files of the same names are written"
    )
    options, beam_arguments = parser.parse_known_args(arguments)
    # The default runs on this machine. Beam's "DirectRunner" would first try another runner, which
    # it downloads.
    beam_options = PipelineOptions(["--runner=FnApiRunner", *beam_arguments])
    FileSystems.set_options(beam_options)
    try:
        files = input_and_output_files(options.input, options.output)
        if not tf.io.gfile.exists(os.path.join(options.model, "saved_model.pb")):
            raise ValueError(
                f"--model must be the directory of a saved_model.pb; received --model "
                f"{options.model}"
            )
    except (BeamIOError, OSError, ValueError, tf.errors.OpError) as error:
        sys.exit(f"{parser.prog}: error: {error}")
    # A batch in Beam is one piece; its requests keep the order of the lines.
    handler = SavedModelHandler(
        options.model, inference_fn=translate, min_batch_size=1, max_batch_size=1
    )
    with beam.Pipeline(options=beam_options) as pipeline:
        pieces = (
            pipeline
            | beam.Create(files)
            | "SpreadFiles" >> beam.Reshuffle()
            | beam.FlatMapTuple(find_pieces)
        )
        written = (
            pieces
            | "SpreadPieces" >> beam.Reshuffle()
            | beam.FlatMapTuple(read_unless_translated)
            | RunInference(KeyedModelHandler(handler))
            | beam.MapTuple(write_piece)
        )
        _ = (
            pieces
            | beam.MapTuple(
                lambda path, output, number, offset: (output, piece_path(output, number))
            )
            | beam.GroupByKey()
            | WaitOn(written)
            | beam.MapTuple(join_pieces)
        )


def input_and_output_files(patterns: Iterable[str], directory: str) -> list[tuple[str, str]]:
    """Returns the path of each input file with the path of its output file."""
    if os.path.isfile(directory):
        raise ValueError(f"--output must be a directory; received --output {directory}")
    paths = set()
    for pattern in patterns:
        matches = [file.path for file in FileSystems.match([pattern])[0].metadata_list]
        if not matches or any(map(os.path.isdir, matches)):
            raise ValueError(f"--input must match files; received --input {pattern}")
        paths.update(matches)
    inputs: dict[str, str] = {}
    for path in sorted(paths):
        output = FileSystems.join(directory, FileSystems.split(path)[1])
        if FileSystems.split(path) == FileSystems.split(output):
            raise ValueError(
                f"--output must not be the directory of an input file; received --output "
                f"{directory}"
            )
        if output in inputs:
            raise ValueError(
                f"input files must have different names; received --input {inputs[output]} and "
                f"{path}"
            )
        inputs[output] = path
    return [(path, output) for output, path in inputs.items()]


def find_pieces(path: str, output: str) -> Iterator[Piece]:
    """Yields the pieces of an input file, at least one, unless its output file exists."""
    if FileSystems.exists(output):
        delete_pieces(output)
        return
    with FileSystems.open(path) as file:
        for number in itertools.count():
            offset = file.tell()
            num_lines = sum(1 for _ in itertools.islice(iter(file.readline, b""), LINES_PER_PIECE))
            if num_lines or number == 0:
                yield path, output, number, offset
            if num_lines < LINES_PER_PIECE:
                break
        # Beam reads a truncated compressed file without an error.
        decompressor = getattr(file, "_decompressor", None)
        if decompressor is not None and not decompressor.eof:
            raise ValueError(f"{path}: the compressed file is cut off")


def read_unless_translated(
    path: str, output: str, number: int, offset: int
) -> Iterator[tuple[str, list[bytes]]]:
    r"""Yields the path of a piece with its lines, without their "\n" or "\r\n", unless its
    translation exists."""
    piece = piece_path(output, number)
    if not FileSystems.exists(piece):
        with FileSystems.open(path) as file:
            file.seek(offset)
            lines = itertools.islice(iter(file.readline, b""), LINES_PER_PIECE)
            yield piece, [line.removesuffix(b"\n").removesuffix(b"\r") for line in lines]


def translate(signature: Any, batch: Iterable[list[bytes]], *_: Any) -> Iterator[list[bytes]]:
    """Yields the translations of the lines of each piece, one line each."""
    for lines in batch:
        requests = (
            lines[begin : begin + LINES_PER_REQUEST]
            for begin in range(0, len(lines), LINES_PER_REQUEST)
        )
        answers = (
            signature(text=tf.constant(request, tf.string))["text"].numpy() for request in requests
        )
        yield [text.replace(b"\n", b" ") for answer in answers for text in answer]


def write_piece(piece: str, lines: Iterable[bytes]) -> str:
    """Writes the translation of a piece, and returns its path."""
    write_whole(piece, FileSystems.split(piece)[0], (line + b"\n" for line in lines))
    return piece


def join_pieces(output: str, pieces: Iterable[str]) -> None:
    """Writes an output file, unless it exists, and deletes its pieces."""

    def contents() -> Iterator[bytes]:
        for piece in sorted(pieces):
            with FileSystems.open(piece) as file:
                yield file.read()

    if not FileSystems.exists(output):
        write_whole(output, pieces_directory(output), contents())
    delete_pieces(output)


def write_whole(path: str, scratch: str, contents: Iterable[bytes]) -> None:
    """Writes a file, compressed according to its name, under a temporary name until it is
    complete."""
    unfinished = FileSystems.join(
        scratch, f"unfinished-{uuid.uuid4().hex}-{FileSystems.split(path)[1]}"
    )
    with FileSystems.create(unfinished) as file:
        for content in contents:
            file.write(content)
    # A file on a local disk must also survive a power failure; other file systems ensure this
    # themselves.
    if os.path.exists(unfinished):
        with open(unfinished, "rb") as written:
            os.fsync(written.fileno())
    FileSystems.rename([unfinished], [path])


def pieces_directory(output: str) -> str:
    """Returns the directory of the pieces of an output file, whose name begins with a dot."""
    directory, name = FileSystems.split(output)
    return FileSystems.join(directory, f".{name}")


def piece_path(output: str, number: int) -> str:
    """Returns the path of a piece. Paths sort by piece number, and contain the size of a piece."""
    return FileSystems.join(pieces_directory(output), f"{number:08}-{LINES_PER_PIECE}")


def delete_pieces(output: str) -> None:
    """Deletes the pieces of an output file, including unfinished ones of killed processes."""
    directory = glob.escape(pieces_directory(output))
    if FileSystems.match([f"{directory}/*"])[0].metadata_list:
        # Object stores have no directories, only paths with a common prefix.
        FileSystems.delete(
            [directory if FileSystems.exists(pieces_directory(output)) else f"{directory}/"]
        )


if __name__ == "__main__":
    main()
