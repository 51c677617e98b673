"""Parts of all exporters: supported options, a check of the scores, versions that appear whole."""

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

# Texts that an exported model must treat as the translator does before its version appears.
PROBES = ["", "A dog runs.", "Zwei Männer 123 🙂", "b" * 300]
# Every format holds any value of these options. A new option is refused until a format names it.
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
    """Facts for a model card that a translator does not know; None stands for unknown."""

    languages: str | None = None  # such as "en-de"
    license: str | None = None  # of the weights
    scores: Sequence[str] = ()  # with their signatures, and the text that they were measured on
    training: str | None = None  # the text that it was trained on, and how long


def transformer_of(translator: Translator) -> Transformer:
    """Returns the model of a translator; a ConfigError if it is not a Transformer."""
    if not isinstance(translator.model, Transformer):
        raise ConfigError(
            f"translator.model must be a Transformer; received a {type(translator.model).__name__}"
        )
    return translator.model


def require_supported(
    config: TransformerConfig, format: str, **supported: Collection[object]
) -> None:
    """Raises a ConfigError unless a format holds what a model computes.

    Options must have one of the `supported` values. Those that are not given must have their
    defaults, but for those of which every format holds any value.
    """
    for field in dataclasses.fields(config):
        if field.name in _FREE and field.name not in supported:
            continue
        value = getattr(config, field.name)
        values = supported.get(field.name, (field.default,))
        # As in a recipe: null and false, and text without quotes.
        *texts, last = [json.dumps(known).strip('"') for known in values]
        rule = f"{', '.join(texts)} or {last}" if texts else last
        require(value in values, f"model.{field.name}", f"{rule} for {format}", value)


def verify_scores(
    received: Sequence[float] | np.ndarray, translator: Translator, program: str
) -> None:
    """Checks an exported model's log probabilities of `PROBES`, each as its own translation.

    Raises:
        VerificationError: They are not those of the translator.
    """
    # Other programs know no tags, terms or placeholders.
    plain = Translator(
        translator.model, translator.tokenizers, DecodingConfig(), is_int8=translator.graph.is_int8
    )
    expected = plain.score(PROBES, PROBES)
    if not np.allclose(received, expected, rtol=1e-3, atol=1e-3):
        raise VerificationError(
            f"{program} gives the log probabilities {received}, the translator {expected}"
        )


def _version_path(output: str | os.PathLike[str], version: int | None) -> pathlib.Path:
    """The path of a version, which does not exist yet: of the next one, if none is given."""
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
    """Writes a version, which appears when it is complete, and returns its path.

    Until then it has a name that TensorFlow Serving ignores. If another export takes the number
    meanwhile, the version gets the next one.

    Args:
        version: defaults to one more than the highest version.
        write: writes the files into the empty directory that it is given.
        card: a Markdown file among them, of which a copy becomes `output/README.md` just before the
            version appears; it says which version it is of. Defaults to None: there is none.

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
    """Puts a copy of a version's card beside the versions.

    If the block fails, the card that was there before comes back.
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
