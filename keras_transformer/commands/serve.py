"""The command `serve`."""

import argparse
import pathlib
from typing import Annotated

from ..config.rules import Count, at_most
from ..errors import ConfigError
from ..runtime.standard_streams import write_lines
from .options import Parser, add_decoding, add_model_dir, add_precision_or_auto
from .trained import load_translator, read_trained

SUMMARY = "Try a model in a browser, and by TensorFlow Serving's REST API; not for production."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option(
        "--port", Annotated[Count, at_most(65_535)], metavar="N", default=8501, help="0 takes a free one (8501)"
    )
    add_decoding(parser)
    add_precision_or_auto(parser)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    trained = read_trained(options.model_dir, options.beam_size, options.length_penalty)
    translator = load_translator(trained, options.precision)
    from keras_transformer.export.servable import graph_of
    from keras_transformer.export.signatures import SIGNATURES

    from ..serving.rest import RestApi, Signature
    from ..serving.server import MAX_ROWS, Served, make_server

    name = pathlib.Path(options.model_dir).resolve().name
    # Traced when somebody asks for them.
    signatures: dict[str, Signature] = {
        key: Signature(each.inputs, graph_of(each, translator)) for key, each in SIGNATURES.items()
    }
    try:
        server = make_server(Served(translator, RestApi(name, signatures, MAX_ROWS)), options.port)
    except OSError as error:
        raise ConfigError(f"--port {options.port}: {error.strerror}") from None
    address = f"http://127.0.0.1:{server.server_port}/"
    write_lines([f"{address} translates; REST: {address}v1/models/{name}:predict"])
    with server:
        server.serve_forever()
