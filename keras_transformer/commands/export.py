"""The commands that exchange models with other programs: `export` and `import`."""

import argparse
import importlib.util
import logging
import typing

from ..checks import text_not_empty
from ..config.values import SignatureName, source_language
from ..errors import ConfigError, DamagedFileError, MissingPackageError
from ..runtime.packages import EXTRAS, how_to_install, tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import (
    SEARCH_SHAPES,
    Parser,
    check_needs,
    existing_directory,
    languages,
    output_directory,
    servable_path,
)
from .trained import load_translator, read_trained, search_shapes_of

if typing.TYPE_CHECKING:
    from keras_transformer.export.publishing import Facts

    from ..model_dir import ModelDir

_log = logging.getLogger(__name__)


def add_export_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --output servable/en-de"
    parser.add_model_dir()
    help = "the directory in which the next version is written"
    parser.add_option("--output", output_directory, "DIR", help, required=True)
    formats = ("saved-model", "ctranslate2", "hugging-face", "onnx")
    help = "what to write (default: saved-model)"
    parser.add_argument("--format", choices=formats, default="saved-model", help=help)
    parser.add_precision(
        "bfloat16 halves the size of the weights, and is faster on processors with instructions "
        "for it; int8-weights "
        "takes a quarter of the size, and computes in float32 (default: float32)",
    )
    parser.add_search()
    parser.add_terms(keep=True)
    with parser.group("SavedModel"):
        names = typing.get_args(SignatureName)
        default = "all; translate_with_tag if the vocabulary has tags"
        help = f"what the SavedModel answers: {', '.join(names)} (default: {default})"
        parser.add_argument("--signatures", nargs="+", choices=names, metavar="NAME", help=help)
        by_name = [name for name in names if name != "serving_default"]
        help = "the signature for requests that do not name one (default: translate)"
        parser.add_argument(
            "--serving-default", choices=by_name, default="translate", metavar="NAME", help=help
        )
        parser.add_flag(
            "--no-verify", "publish the SavedModel without comparing its answers in a new process"
        )
        parser.add_flag(
            "--compile",
            "let the server compile searches, which makes short texts faster; it must be started "
            "with --xla_cpu_compilation_enabled=true",
        )
        parser.add_search_shapes("1 16")
    with parser.group("model card"):
        help = "such as en-de; documents are divided by the rules of the first (default: unknown)"
        parser.add_option("--languages", languages, "PAIR", help)
        parser.add_option("--license", text_not_empty, "NAME", "of the weights (default: unknown)")


def run_export(options: argparse.Namespace) -> None:
    """Write a SavedModel for TensorFlow Serving, or a model for CTranslate2, ONNX or Hugging
    Face."""
    check_needs(options, SEARCH_SHAPES, "compile")
    if options.format == "saved-model":
        servable_path("--output", options.output)
    else:
        _check_saved_model_options(options)
    trained = read_trained(options.model_dir, options)
    language = None if options.languages is None else source_language(options.languages)
    translator = load_translator(trained, language)
    from ..runtime.device import log_device

    log_device()
    if options.format == "ctranslate2":
        from keras_transformer.export.ctranslate2 import export_ctranslate2

        path = export_ctranslate2(translator, options.output)
    elif options.format == "onnx":
        from keras_transformer.export.onnx import export_onnx

        path = export_onnx(translator, options.output)
    elif options.format == "hugging-face":
        from keras_transformer.export.hugging_face import export_hugging_face

        path = export_hugging_face(
            translator, options.output, facts=_facts(options, trained.model_dir)
        )
    else:
        from keras_transformer.export.servable import export_servable

        path = export_servable(
            translator,
            options.output,
            signatures=options.signatures,
            serving_default=options.serving_default,
            verified=not options.no_verify,
            facts=_facts(options, trained.model_dir),
            shapes=search_shapes_of(options, batch_sizes=(1, 16)),
        )
    write_lines([str(path)])


def _facts(options: argparse.Namespace, model_dir: "ModelDir") -> "Facts":
    from keras_transformer.export.publishing import Facts

    return Facts(
        options.languages,
        options.license,
        model_dir.read_evaluation(),
        _describe_training(model_dir),
    )


def _describe_training(model_dir: "ModelDir") -> str | None:
    """The text of the training run and its updates, if the model directory has them."""
    from keras_transformer.training.run.state import read_progress

    try:
        state = read_progress(model_dir)
    except DamagedFileError as error:
        _log.warning(f"{error}; the model card does not tell the training text")
        return None
    if (text := state.text.get("train")) is None:
        return None
    checksums = f"SHA-256 of the source `{text['source']}`, of the target `{text['target']}`"
    return f"{state.step:,} updates, with a text of {text['lines']:,} sentence pairs ({checksums})"


def _check_saved_model_options(options: argparse.Namespace) -> None:
    """Refuses options of SavedModels that another format has no place for."""
    given = f"must not be given with --format {options.format}"
    if options.precision != "float32":
        raise ConfigError(
            f"--precision {given}: its weights are float32, and take another type when they are "
            f"loaded"
        )
    if options.compile:
        raise ConfigError(f"--compile {given}: its programs are compiled by TensorFlow")
    if (options.signatures, options.serving_default, options.no_verify) != (
        None,
        "translate",
        False,
    ):
        raise ConfigError(
            f"--signatures, --serving-default and --no-verify {given}: they are about SavedModels"
        )
    if options.tag is not None:
        raise ConfigError(
            f"--tag {given}: its tokenizer knows none; put the tag's token before those of each "
            f"source"
        )
    if options.keep is not None:
        raise ConfigError(f"--keep {given}: its tokenizer puts no placeholders")
    if options.terms is not None:
        raise ConfigError(f"--terms {given}: its tokenizer writes no translations beside terms")
    if options.format != "hugging-face":
        if (options.beam_size, options.length_penalty) != (None, None):
            raise ConfigError(
                f"--beam-size and --length-penalty {given}: its files hold no search settings"
            )
        if options.languages or options.license:
            raise ConfigError(f"--languages and --license {given}: its files have no card")
        # The extras of these formats have their names.
        for name in EXTRAS[options.format]:
            if importlib.util.find_spec(name) is None:
                raise MissingPackageError(
                    f"--format {options.format} needs the package {name}: "
                    f"{how_to_install(options.format)}"
                )


def add_import_options(parser: Parser) -> None:
    parser.example = "--from opus-mt-en-de --model-dir models/en-de"
    parser.add_model_dir()
    parser.add_option(
        "--from", existing_directory, "DIR", "the folder that holds the model", required=True
    )


def run_import(options: argparse.Namespace) -> None:
    """Convert a model of Marian, or of Hugging Face's port of it, to a model directory."""
    with tensorflow_backend():
        from ..pretrained import import_model
    # `from` is a keyword of Python.
    write_lines([str(import_model(getattr(options, "from"), options.model_dir))])
