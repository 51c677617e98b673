"""The commands that use a trained model: `translate`, `plot` and `serve`."""

import argparse
import codecs
import contextlib
import functools
import itertools
import logging
import pathlib
import socket
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

from ..checks import non_negative_int, picture_path, positive_int, text_not_empty
from ..config.model import AttentionKind, AttentionView, head_choice, layer_choice
from ..config.values import language_tag
from ..errors import ConfigError, InvalidFileError
from ..runtime.packages import tensorflow_backend
from ..runtime.progress import ProgressBar, counted
from ..runtime.standard_streams import MAX_LINE_BYTES, arriving_lines, standard_input, write_lines
from .options import (
    SAMPLING,
    SEARCH_SHAPES,
    Parser,
    check_needs,
    check_outputs,
    directory,
    existing_directory,
    existing_file,
    input_file,
    sentence_to_translate,
    servable_path,
)
from .trained import (
    LINES_PER_BLOCK,
    UnknownCharacters,
    check_n_best,
    load_translator,
    log_truncated,
    read_trained,
    sampling_of,
    search_shapes_of,
)

if TYPE_CHECKING:
    from ..serving.server import RestApi, ServedFunction
    from ..tensors import Tensor
    from ..translation import Translator

# Attribute of compiled functions in a SavedModel.
_COMPILED = b"_XlaMustCompile"

_log = logging.getLogger(__name__)


def add_translate_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --source test.en --output test.de"
    parser.add_model_dir()
    help = "sentences, one per line (default: standard input)"
    parser.add_option("--source", input_file, "FILE", help)
    help = (
        "output file, which appears when all translations are complete (default: standard output)"
    )
    parser.add_option("--output", text_not_empty, "FILE", help)
    parser.add_overwrite()
    help = (
        "write the N best translations per sentence, as lines with line number, score and "
        "translation, separated by tabs"
    )
    parser.add_option("--n-best", positive_int, "N", help, type=int)
    parser.add_option(
        "--prefix", existing_file, "FILE", "prefixes of the translations, one per line"
    )
    parser.add_flag("--documents", "split each line into sentences before translation")
    help = (
        "language of --documents as a BCP 47 tag, such as de or zh-Hant; its abbreviations do not "
        "end a sentence (default: abbreviations of all languages, unless they are words in "
        "another language)"
    )
    parser.add_option("--language", language_tag, "TAG", help)
    parser.add_precision()
    parser.add_search()
    parser.add_terms(keep=True)
    parser.add_sampling()


def run_translate(options: argparse.Namespace) -> None:
    """Translate a file or standard input, line by line."""
    check_needs(options, SAMPLING, "sample")
    check_outputs(options, [options.output] if options.output else [])
    reads_file = options.source not in (None, "-")
    source_name = options.source if reads_file else "standard input"
    if reads_file:
        _require_uncompressed(options.source)
    check_needs(options, ["language"], "documents")
    if options.sample and (options.n_best or 1) > 1:
        raise ConfigError("give either --sample or --n-best")
    if options.documents and (
        options.sample or options.n_best is not None or options.prefix is not None
    ):
        raise ConfigError("--documents cannot be combined with --sample, --n-best or --prefix")
    trained = read_trained(options.model_dir, options)
    check_n_best(options.n_best or 1, trained, options)
    if not reads_file:
        standard_input()
    translator = load_translator(trained)
    from ..model_dir.files import replacing

    unknown = UnknownCharacters(translator)
    bar = ProgressBar("translating", "lines")
    num_lines = 0
    with contextlib.ExitStack() as stack:
        prefixes: Iterator[bytes] | None = None
        if options.prefix is not None:
            prefixes = _prefixes(stack.enter_context(open(options.prefix, "rb")), options.prefix)
        source = stack.enter_context(open(options.source, "rb")) if reads_file else None
        output = None
        if options.output:
            path = stack.enter_context(replacing(options.output))
            output = stack.enter_context(open(path, "wb"))
        if output or not sys.stdout.isatty():
            # On a terminal, the printed translations already show the progress.
            stack.enter_context(bar)
        for lines in arriving_lines(LINES_PER_BLOCK, source, source_name):
            # Pass bytes, because the tokenizer replaces invalid UTF-8.
            texts = [line.removesuffix(b"\r") for line in lines]
            if num_lines == 0:
                texts[0] = texts[0].removeprefix(codecs.BOM_UTF8)
            unknown.look_for(texts, num_lines + 1)
            if options.documents:
                translations = _translate_documents(
                    translator, texts, num_lines + 1, options.language
                )
            else:
                translations = _translate(translator, texts, num_lines + 1, options, prefixes)
            rows = (translation.replace("\n", " ") for translation in translations)
            write_lines(rows, output, options.output or "standard output")
            num_lines += len(lines)
            bar.advance(len(lines))
        if prefixes is not None and next(prefixes, None) is not None:
            raise ConfigError(
                f"{options.prefix}: the file must have as many lines as the source; it has more"
            )
    _log.info(f"translated {counted(num_lines, 'line')}")


def _require_uncompressed(path: str) -> None:
    """Raises a ConfigError for a compressed file, because its bytes would be translated as text."""
    for suffix, program in ((".gz", "gzip"), (".xz", "xz"), (".zst", "zstd")):
        if path.endswith(suffix):
            raise ConfigError(
                f"--source must not be compressed; decompress it: {program} -dc {path} | "
                "keras-transformer translate ..."
            )


def _prefixes(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the lines of a file as bytes.

    Raises:
        InvalidFileError: If a line has more than 1 MiB, or the file cannot be read.
    """
    for number in itertools.count(1):
        try:
            # Leave room for a byte order mark and a line end.
            line = file.readline(MAX_LINE_BYTES + 6)
        except OSError as error:
            # Prefixes are read while translations are written, so an OSError would be reported for
            # the output.
            raise InvalidFileError(f"{path}: {error.strerror}") from None
        if not line:
            return
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > MAX_LINE_BYTES:
            raise InvalidFileError(
                f"{path}: line {number} must have at most {MAX_LINE_BYTES:,} bytes; it has more"
            )
        yield line


def _translate(
    translator: "Translator",
    texts: list[bytes],
    first: int,
    options: argparse.Namespace,
    prefixes: Iterator[bytes] | None,
) -> Iterator[str]:
    """Yields the output lines for a block of texts, whose line numbers start at `first`."""
    block_prefixes = None if prefixes is None else list(itertools.islice(prefixes, len(texts)))
    if block_prefixes is not None and len(block_prefixes) < len(texts):
        num_lines = first - 1 + len(block_prefixes)
        raise ConfigError(
            f"{options.prefix}: the file must have as many lines as the source; "
            f"it has only {num_lines}"
        )
    sampling = sampling_of(options, first - 1)
    translations = translator.translate(
        texts, options.n_best or 1, prefixes=block_prefixes, sampling=sampling
    )
    log_truncated(translator, (translation.source_length for translation in translations), first)
    for number, translation in enumerate(translations, start=first):
        for text, score in translation.hypotheses:
            yield text if options.n_best is None else f"{number}\t{score:.4f}\t{text}"


def _translate_documents(
    translator: "Translator", texts: list[bytes], first: int, language: str | None
) -> Iterator[str]:
    from ..translation.documents import MAX_SENTENCES, MAX_TOKENS

    for number, document in enumerate(translator.translate_document(texts, language), start=first):
        if document.was_cut:
            _log.info(
                f"line {number}: a part was not translated: a document may have at most "
                f"{MAX_SENTENCES} sentences and {MAX_TOKENS:,} tokens, and a character at most the "
                f"model's {translator.model.config.max_length} tokens"
            )
        yield document.text


def add_plot_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --text 'Dogs run.' --output attention.svg"
    parser.add_paths(
        "--model-dir",
        "model directories; only one with --text",
        required=True,
        check=directory,
        metavar="DIR",
    )
    help = (
        "a .png, .svg or .pdf file, or a .html file for an interactive page that shows numbers "
        "and, with --text, every head"
    )
    parser.add_option("--output", picture_path, "FILE", help, required=True)
    parser.add_overwrite()
    with parser.group("attention"):
        help = "translate this sentence and plot the attention"
        parser.add_option("--text", sentence_to_translate, "SENTENCE", help)
        help = (
            "cross is attention from the translation to the source; encoder and decoder are "
            "self-attention (default: cross)"
        )
        parser.add_argument("--kind", choices=typing.get_args(AttentionKind), help=help)
        parser.add_option(
            "--layer",
            layer_choice,
            "N",
            "number of a layer, counted from 1, or all (default: the last layer)",
        )
        help = (
            "number of a head, counted from 1 (default: all; with training.guided_alignment, the "
            "first head, which is trained for alignment)"
        )
        parser.add_option("--head", head_choice, "N", help)
        parser.add_tag()


def run_plot(options: argparse.Namespace) -> None:
    """Plot the loss, BLEU and learning rate of training runs, or the attention of a translation."""
    model_dirs = options.model_dir
    check_outputs(options, [options.output])
    if options.text is None:
        check_needs(options, ("kind", "layer", "head", "tag"), "text")
        from keras_transformer.training.curves import plot_training

        plot_training(model_dirs, options.output)
        return
    if len(model_dirs) > 1:
        raise ConfigError(f"--text needs one --model-dir; received {len(model_dirs)}")
    trained = read_trained(model_dirs[0], options)
    kind: AttentionKind = options.kind or "cross"
    layer = options.layer or "last"
    aligns = kind == "cross" and layer == "last" and trained.config.training.guided_alignment > 0
    view = AttentionView(kind, layer, options.head or ("1" if aligns else "all"))
    # Report a layer or head that the model does not have before loading TensorFlow.
    view.layers(trained.config.model, "--layer")
    view.heads(trained.config.model, "--head")
    translator = load_translator(trained)
    log_truncated(translator, translator.num_tokens([options.text]), 1, "--text")
    from ..translation.attention import plot_attention

    write_lines([plot_attention(translator, options.text, options.output, view)])


def add_serve_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de"
    parser.add_option("--model-dir", directory, "DIR", "the model directory")
    help = "SavedModel from export, instead of --model-dir: the folder of a version, or its parent"
    parser.add_option("--servable", existing_directory, "DIR", help)
    port = functools.partial(non_negative_int, at_most=65_535)
    help = "port; 0 selects a free port (default: 8501)"
    parser.add_option("--port", port, "N", help, type=int, default=8501)
    parser.add_precision()
    parser.add_search()
    parser.add_terms()
    with parser.group("compiled search"):
        parser.add_flag(
            "--compile", "compile the search at the start, which makes short texts faster"
        )
        parser.add_search_shapes()


def run_serve(options: argparse.Namespace) -> None:
    """Try a model on a web page or with TensorFlow Serving's REST API. Not for production."""
    if (options.model_dir is None) == (options.servable is None):
        raise ConfigError("give either --model-dir or --servable")
    check_needs(options, SEARCH_SHAPES, "compile")
    _require_free(options.port)
    api = _api_of_model_dir(options) if options.servable is None else _api_of_servable(options)
    from ..runtime.device import log_device
    from ..serving.server import make_server

    log_device()
    try:
        server = make_server(api, options.port)
    except OSError as error:
        raise ConfigError(f"--port {options.port}: {error.strerror}") from None
    address = f"http://127.0.0.1:{server.server_port}/"
    rest = f"{address.removesuffix('/')}{api.url_path}:predict"
    write_lines([f"{address} (web page), {rest} (REST API)"])
    with server:
        server.serve_forever()


def _require_free(port: int) -> None:
    """Raises a ConfigError if a port is in use, before the model is loaded."""
    with socket.socket() as listener:
        # Like the server, accept a port that another server has just released.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(f"--port {port}: {error.strerror}") from None


def _api_of_model_dir(options: argparse.Namespace) -> "RestApi":
    translator = load_translator(read_trained(options.model_dir, options))
    from keras_transformer.export.servable import graph_of
    from keras_transformer.export.signatures import signatures_of
    from keras_transformer.export.warmup import requests_that_compile

    from ..serving.server import RestApi, ServedFunction

    shapes = search_shapes_of(options)
    if shapes is not None:
        shapes = shapes.up_to(translator.model.config.max_length)
        translator.compile_search(*shapes)
    known = signatures_of(translator)
    # Signatures are traced at the first request.
    signatures: dict[str, ServedFunction] = {
        key: ServedFunction(signature.inputs, graph_of(signature, translator.graph))
        for key, signature in known.items()
    }
    if shapes is not None:
        requests = requests_that_compile(translator, shapes, known)
        _compile(signatures, [(key, inputs) for key in requests for inputs in requests[key]])
    return RestApi(pathlib.Path(options.model_dir).resolve().name, signatures)


def _compile(
    signatures: Mapping[str, "ServedFunction"],
    requests: Sequence[tuple[str, Mapping[str, "Tensor"]]],
) -> None:
    """Compiles the search by sending a request for every shape to its signature."""
    with ProgressBar("compiling the search", "requests", len(requests)) as bar:
        for key, inputs in bar.count(requests):
            signatures[key].function(**inputs)
    _log.info(f"compiled the search, with {counted(len(requests), 'request')}")


def _api_of_servable(options: argparse.Namespace) -> "RestApi":
    given = (
        options.beam_size,
        options.length_penalty,
        options.precision,
        options.no_shortlist,
        options.tag,
    )
    if (*given, options.terms) != (None, None, "auto", False, None, None):
        raise ConfigError(
            "--beam-size, --length-penalty, --precision, --no-shortlist, --tag and --terms are "
            "for --model-dir: a "
            "SavedModel has its own"
        )
    if options.compile:
        raise ConfigError("--compile is for --model-dir: export a SavedModel with --compile")
    servable_path("--servable", str(pathlib.Path(options.servable).resolve()))
    with tensorflow_backend():
        from keras_transformer.export.warmup import read_warmup_requests

        from ..serving.server import load_servable, version_folder

        api = load_servable(options.servable)
        folder = version_folder(options.servable)
        if _COMPILED in (folder / "saved_model.pb").read_bytes():
            _compile(api.signatures, read_warmup_requests(folder))
        return api
