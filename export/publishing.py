"""Shared parts of all exporters: option checks, score checks and versioned directories."""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from keras_transformer.checks import require
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.errors import ConfigError, VerificationError
from keras_transformer.model_dir.files import rename, replacing, temporary_beside
from keras_transformer.models import Transformer
from keras_transformer.translation import Translator

# A version appears only after the exported model has computed the same scores for these texts as
# the translator.
PROBES = ["", "A dog runs.", "Zwei Männer 123 🙂", "b" * 300]
# All formats support all values of these options. For any other option, a format supports only the
# values that it lists, or the default if it lists none. Other values of a new option are therefore
# rejected until a format lists them.
_FREE = {
    "source_vocab_size",
    "target_vocab_size",
    "num_layers",
    "num_encoder_layers",
    "num_decoder_layers",
    "d_model",
    "d_ff",
    "num_heads",
    "key_dim",
    "value_dim",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "norm_first",
    "tie_embeddings",
    "epsilon",
    "attention_bias",
    "logits_bias",
    "feed_forward_bias",
    "max_length",
}


@dataclasses.dataclass(frozen=True)
class Facts:
    """Facts for a model card that a translator does not contain. None means unknown."""

    languages: str | None = None  # such as "en-de"
    license: str | None = None  # of the weights
    scores: Sequence[str] = ()  # with their signatures and the test set
    training: str | None = None  # the training text, and how long training took


def transformer_of(translator: Translator) -> Transformer:
    """Returns the model of a translator, or raises a ConfigError if it is not a Transformer."""
    if not isinstance(translator.model, Transformer):
        raise ConfigError(
            f"translator.model must be a Transformer; received a {type(translator.model).__name__}"
        )
    return translator.model


def require_exportable(
    config: TransformerConfig, format: str, **supported: Collection[object]
) -> None:
    """Raises a ConfigError unless a format supports a model's options.

    An option that is given must have one of its `supported` values. An option that is not given
    must have its default, unless all formats support all of its values.
    """
    for field in dataclasses.fields(config):
        if field.name in _FREE and field.name not in supported:
            continue
        value = getattr(config, field.name)
        values = supported.get(field.name, (field.default,))
        # Show values as in a recipe: null, false, and text without quotes.
        *texts, last = [json.dumps(known).strip('"') for known in values]
        rule = f"{', '.join(texts)} or {last}" if texts else last
        require(value in values, f"model.{field.name}", f"{rule} for {format}", value)


def verify_scores(
    received: Sequence[float] | np.ndarray, translator: Translator, program: str
) -> None:
    """Checks an exported model's log probabilities of `PROBES` as their own translations.

    Raises:
        VerificationError: The log probabilities differ from the translator's.
    """
    # Other programs do not support tags, terms or placeholders.
    plain = Translator(
        translator.model, translator.tokenizers, DecodingConfig(), is_int8=translator.graph.is_int8
    )
    expected = plain.score(PROBES, PROBES)
    if not np.allclose(received, expected, rtol=1e-3, atol=1e-3):
        raise VerificationError(
            f"{program} computes the log probabilities {received}; "
            f"the translator computes {expected}"
        )


def _version_path(output: str | os.PathLike[str], version: int | None) -> pathlib.Path:
    """Returns the path of a new version: `version` or, if it is None, the next number."""
    output = pathlib.Path(output)
    if version is None:
        names = [path.name for path in output.glob("*")]
        versions = [int(name) for name in names if re.fullmatch(r"[0-9]+", name)]
        version = 1 + max(versions, default=0)
    require(version > 0, "version", "positive", version)
    path = output / str(version)
    if path.exists():
        raise ConfigError(f"{path}: this version already exists")
    return path


def publish(
    output: str | os.PathLike[str],
    version: int | None,
    write: Callable[[pathlib.Path], None],
    card: pathlib.PurePath | None = None,
) -> pathlib.Path:
    """Writes a version and returns its path.

    Until the version is complete, its directory has a name that TensorFlow Serving ignores. If
    `version` is None and another export takes its number in the meantime, the next number is used.

    Args:
        version: Version number. Defaults to None: one more than the highest version.
        write: Function that writes the files to the empty directory that it receives.
        card: Path of a Markdown file in the version. Just before the version appears, the file is
            copied to `output/README.md` with a line that names the version. Defaults to None: no
            card.

    Raises:
        ConfigError: The version exists or is not positive.
    """
    path = _version_path(output, version)
    with temporary_beside(path, is_directory=True) as temporary:
        write(temporary)
        while True:
            path = _version_path(output, version)
            try:
                if card is None:
                    rename(temporary, path)
                else:
                    with _card_beside(path, temporary, card):
                        rename(temporary, path)
                return path
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise


@contextlib.contextmanager
def _card_beside(
    path: pathlib.Path, written: pathlib.Path, card: pathlib.PurePath
) -> Iterator[None]:
    """Copies a version's card to the directory that contains all versions.

    If the block fails, the previous card is restored.
    """
    beside = path.with_name("README.md")
    previous = beside.read_bytes() if beside.is_file() else None
    title, rest = (written / card).read_text("utf-8").split("\n", 1)
    of_version = f"This is the card of version {path.name}. Each version has its own: `{card}`."
    with replacing(beside) as temporary:
        temporary.write_text(f"{title}\n\n{of_version}\n{rest}", "utf-8")
    try:
        yield
    except BaseException:
        if previous is None:
            beside.unlink()
        else:
            with replacing(beside) as temporary:
                temporary.write_bytes(previous)
        raise
