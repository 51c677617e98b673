"""The commands for models of other programs: `export` and `import`."""

import argparse
import importlib.util
import logging
import typing

from ..checks import text_not_empty, utf_8
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
    help = "directory for the exported model; the next version is written there"
    parser.add_option("--output", output_directory, "DIR", help, required=True)
    formats = ("saved-model", "ctranslate2", "hugging-face", "onnx")
    help = "output format (default: saved-model)"
    parser.add_argument("--format", choices=formats, default="saved-model", help=help)
    parser.add_precision(
        "bfloat16 halves the size of the weights and is faster on processors with bfloat16 "
        "instructions; int8-weights "
        "reduces the size to a quarter and computes in float32 (default: float32)",
    )
    parser.add_search()
    parser.add_terms(keep=True)
    with parser.group("SavedModel"):
        names = typing.get_args(SignatureName)
        default = "all, but translate_with_tag only if the vocabulary has tags"
        help = f"signatures of the SavedModel: {', '.join(names)} (default: {default})"
        parser.add_argument("--signatures", nargs="+", choices=names, metavar="NAME", help=help)
        by_name = [name for name in names if name != "serving_default"]
        help = "signature for requests without a signature name (default: translate)"
        parser.add_argument(
            "--serving-default", choices=by_name, default="translate", metavar="NAME", help=help
        )
        parser.add_flag(
            "--no-verify", "do not verify the outputs of the SavedModel in a new process"
        )
        parser.add_flag(
            "--compile",
            "let TensorFlow Serving compile the search, which makes short texts faster; start it "
            "with --xla_cpu_compilation_enabled=true",
        )
        parser.add_search_shapes()
    with parser.group("model card"):
        help = (
            "source and target language, such as en-de; the rules of the source language split "
            "documents into sentences (default: unknown)"
        )
        parser.add_option("--languages", languages, "PAIR", help)
        help = "license of the weights (default: unknown)"
        parser.add_option("--license", _license, "NAME", help)


def _license(name: str, value: str) -> str:
    """Checks the name of a license, which is written to the model card in UTF-8."""
    return utf_8(name, text_not_empty(name, value))


def run_export(options: argparse.Namespace) -> None:
    """Export a model as a SavedModel for TensorFlow Serving, or for CTranslate2, ONNX or Hugging
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
            shapes=search_shapes_of(options),
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
    """Returns a description of the training steps and text, or None if it is not available."""
    from keras_transformer.training.run.state import read_progress

    try:
        state = read_progress(model_dir)
    except DamagedFileError as error:
        _log.warning(f"{error}; the model card will not describe the training text")
        return None
    if (text := state.text.get("train")) is None:
        return None
    checksums = f"SHA-256 of the source `{text['source']}`, of the target `{text['target']}`"
    return f"{state.step:,} updates, with a text of {text['lines']:,} sentence pairs ({checksums})"


def _check_saved_model_options(options: argparse.Namespace) -> None:
    """Raises a ConfigError for options that only apply to SavedModels."""
    given = f"must not be given with --format {options.format}"
    if options.precision != "float32":
        raise ConfigError(
            f"--precision {given}: the weights are stored in float32; choose another type when "
            f"you load them"
        )
    if options.compile:
        raise ConfigError(f"--compile {given}: only SavedModels can be compiled")
    if (options.signatures, options.serving_default, options.no_verify) != (
        None,
        "translate",
        False,
    ):
        raise ConfigError(
            f"--signatures, --serving-default and --no-verify {given}: they only apply to "
            f"SavedModels"
        )
    if options.tag is not None:
        raise ConfigError(
            f"--tag {given}: its tokenizer does not add tags; insert the tag's token before the "
            f"tokens of each source"
        )
    if options.keep is not None:
        raise ConfigError(f"--keep {given}: its tokenizer does not support placeholders")
    if options.terms is not None:
        raise ConfigError(f"--terms {given}: its tokenizer does not support glossaries")
    if options.format != "hugging-face":
        if (options.beam_size, options.length_penalty) != (None, None):
            raise ConfigError(
                f"--beam-size and --length-penalty {given}: the format has no search settings"
            )
        if options.languages or options.license:
            raise ConfigError(f"--languages and --license {given}: the format has no model card")
        # Formats and extras have the same names.
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
        "--from", existing_directory, "DIR", "folder with the model to import", required=True
    )


def run_import(options: argparse.Namespace) -> None:
    """Convert a Marian model, or its Hugging Face version, to a model directory."""
    with tensorflow_backend():
        from ..pretrained import import_model
    # `options.from` is not valid, because `from` is a Python keyword.
    write_lines([str(import_model(getattr(options, "from"), options.model_dir))])
