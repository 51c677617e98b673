"""The command `serve`."""

import argparse
import pathlib
from typing import TYPE_CHECKING, Annotated

from ..errors import ConfigError
from ..rules import Count, at_most
from ..runtime.backend import tensorflow_backend
from ..runtime.standard_streams import write_lines
from .options import Directory, ExistingDirectory, Parser
from .trained import load_translator, read_trained

if TYPE_CHECKING:
    from ..serving.server import RestApi


def add_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de"
    parser.add_option("--model-dir", Directory, "DIR", "the model directory")
    help = "or a SavedModel, as export writes it: the directory of all versions, or of one"
    parser.add_option("--servable", ExistingDirectory, "DIR", help)
    port = Annotated[Count, at_most(65_535)]
    parser.add_option("--port", port, "N", "0 takes a free one (default: 8501)", default=8501)
    parser.add_precision_or_auto()
    parser.add_search()
    parser.add_terms()


def run(options: argparse.Namespace) -> None:
    """Try a model in a browser, and by TensorFlow Serving's REST API; not for production."""
    if (options.model_dir is None) == (options.servable is None):
        raise ConfigError("give either --model-dir or --servable")
    api = _api_of_model_dir(options) if options.servable is None else _api_of_servable(options)
    from ..runtime.device import log_device
    from ..serving.server import make_server

    log_device()
    try:
        server = make_server(api, options.port)
    except OSError as error:
        raise ConfigError(f"--port {options.port}: {error.strerror}") from None
    address = f"http://127.0.0.1:{server.server_port}/"
    write_lines([f"{address} translates; REST: {address}v1/models/{api.name}:predict"])
    with server:
        server.serve_forever()


def _api_of_model_dir(options: argparse.Namespace) -> "RestApi":
    translator = load_translator(read_trained(options.model_dir, options))
    from keras_transformer.export.servable import graph_of
    from keras_transformer.export.signatures import signatures_of

    from ..serving.server import RestApi, Signature

    # Traced at the first request.
    signatures: dict[str, Signature] = {
        key: Signature(signature.inputs, graph_of(signature, translator))
        for key, signature in signatures_of(translator).items()
    }
    return RestApi(pathlib.Path(options.model_dir).resolve().name, signatures)


def _api_of_servable(options: argparse.Namespace) -> "RestApi":
    given = (options.beam_size, options.length_penalty, options.precision, options.no_shortlist, options.tag)
    if (*given, options.terms) != (None, None, "auto", False, None, None):
        raise ConfigError(
            "--beam-size, --length-penalty, --precision, --no-shortlist, --tag and --terms are for --model-dir: a "
            "SavedModel has its own"
        )
    with tensorflow_backend():
        from ..serving.server import load_servable

        return load_servable(options.servable)
