"""Marian's own format: model.npz, which holds its configuration, and vocabularies as .spm or .yml files."""

import pathlib
import re
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from ..config import Config, DecodingConfig, TokenizerConfig, TransformerConfig
from ..config.rules import require, shown
from ..config.yaml_file import parse_value, read_sections
from ..errors import ConfigError, naming_source
from ..tokenizers import pieces_of
from .model import PretrainedModel, tie_embeddings
from .vocabulary import Vocabulary, read_bytes, tokenizers_of

_CONFIG = "special:model.yml"
# What options may be. One that is missing, as in files of older versions, has the first value.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-no-projection": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-affine": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-tied-layers": ([],),
    "transformer-pool": (False,),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "output-omit-bias": (False,),
    "input-types": ([],),
    "lemma-dim-emb": (0,),
    "right-left": (False,),
}
# Normalization after the residual sum, as in the paper, or before each sublayer and at the top.
_NORMALIZATION = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
_NORM_FIRST: dict[tuple[str, ...], bool] = {("", "dan", ""): False, ("n", "da", "n"): True}
_SUBLAYERS = {"self": "attention", "context": "source_attention", "ffn": "feed_forward"}
_PARTS = {"q": "query", "k": "key", "v": "value", "o": "output", "1": "hidden", "2": "output"}
_KINDS = {"W": "kernel", "b": "bias", "scale": "gamma", "bias": "beta"}
# Marian knows no longest sequence.
_MAX_LENGTH = 512


class MarianFiles(NamedTuple):
    """What a folder of a Marian model holds.

    Attributes:
        model: path of the model.
        vocabularies: paths of the vocabularies of source and target, which may be the same.
        settings: content of the decoder.yml, {} if there is none.
    """

    model: pathlib.Path
    vocabularies: tuple[pathlib.Path, pathlib.Path]
    settings: dict[str, Any]


def find_files(folder: pathlib.Path) -> MarianFiles:
    """Finds the files of a Marian model.

    Raises:
        ConfigError: There is none, or more than one that it could be.
    """
    model = _model_path(folder)
    settings_path = next(
        (each for each in (folder / "decoder.yml", *sorted(folder.glob("*.decoder.yml"))) if each.is_file()), None
    )
    settings = read_sections(settings_path) if settings_path else {}
    paths = _vocabulary_paths(folder, settings)
    return MarianFiles(model, (paths[0], paths[-1]), settings)


def read_marian(folder: pathlib.Path) -> PretrainedModel:
    """Reads a folder with a Marian model, its vocabularies and, if there is one, its decoder.yml.

    Raises:
        ConfigError: A file is missing or damaged, or an option has a value that is not supported.
    """
    path, vocabularies, settings = find_files(folder)
    arrays = _read_arrays(path)
    with naming_source(path):
        options = _options(arrays)
        weights = _weights(arrays)
    sizes = [len(weights.get(f"{side}_embedding", weights["target_embedding"])) for side in ("source", "target")]
    source, target = _vocabularies(folder, vocabularies, sizes)
    tokenizers = tokenizers_of(source, target)
    if "source_embedding" not in weights and source[1].rows != target[1].rows:
        # One table in the file, but with ids of different meanings.
        weights["source_embedding"] = weights["target_embedding"]
    with naming_source(path):
        model = TransformerConfig(
            len(source[1].rows), len(target[1].rows), tie_embeddings=tie_embeddings(weights), **_sizes(options)
        )
    tokenizer = TokenizerConfig("sentencepiece", len(target[1].rows), tokenizers.is_shared)
    config = Config(model, tokenizer, _decoding(settings))
    return PretrainedModel(config, tokenizers, weights, source[1].rows, target[1].rows)


def _model_path(folder: pathlib.Path) -> pathlib.Path:
    paths = sorted(path for path in folder.glob("*.npz") if not path.name.endswith(".optimizer.npz"))
    named = [path for path in paths if path.name == "model.npz"] or paths
    if len(named) != 1:
        names = ", ".join(path.name for path in named) or "none"
        raise ConfigError(f"{folder}: there must be one model, *.npz; found {names}")
    return named[0]


def _read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise ConfigError(f"{path}: the file cannot be read ({str(error).splitlines()[0]})") from None


def _options(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The options that the model was trained with, if all of them are supported."""
    if _CONFIG not in arrays:
        raise ConfigError(f"not a Marian model: it has no {_CONFIG}")
    options = parse_value(arrays[_CONFIG].tobytes().rstrip(b"\0").decode("utf-8", "replace"))
    require(isinstance(options, dict), _CONFIG, "a mapping", options)
    for name, values in _SUPPORTED.items():
        if (value := options.get(name, values[0])) not in values:
            raise ConfigError(f"the option {name}: {shown(value)} is not supported")
    normalization = tuple(options.get(name) or "" for name in _NORMALIZATION)
    if normalization not in _NORM_FIRST:
        text = ", ".join(f"{name}: {value!r}" for name, value in zip(_NORMALIZATION, normalization, strict=True))
        raise ConfigError(f"the options {text} are not supported")
    return options


def _sizes(options: dict[str, Any]) -> dict[str, Any]:
    return dict(
        num_layers=options.get("enc-depth"),
        num_decoder_layers=None if options.get("dec-depth") == options.get("enc-depth") else options.get("dec-depth"),
        d_model=options.get("dim-emb"),
        d_ff=options.get("transformer-dim-ffn"),
        num_heads=options.get("transformer-heads"),
        activation=options.get("transformer-ffn-activation", "relu"),
        norm_first=_NORM_FIRST[tuple(options.get(name) or "" for name in _NORMALIZATION)],
        positions="tensor2tensor",
        attention_bias=True,
        logits_bias=True,
        max_length=_MAX_LENGTH,
    )


def _weights(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights under our names, in the shapes that Keras has."""
    weights = {}
    for name, array in arrays.items():
        if name.startswith("special:"):
            continue
        if array.dtype not in (np.float32, np.float16):
            raise ConfigError(f"the weight {name} of type {array.dtype} is not supported")
        ours = _our_name(name)
        array = array.T if name.endswith("_Wt") else array
        weights[ours] = array.astype("float32") if ours.endswith(("kernel", "embedding")) else array.ravel()
    if "target_embedding" not in weights:
        raise ConfigError("the weight Wemb or decoder_Wemb is missing")
    if "logits/kernel" in weights:
        weights.setdefault("source_embedding", weights["target_embedding"])
    return weights


def _our_name(name: str) -> str:
    special = {
        "Wemb": "target_embedding",
        "decoder_Wemb": "target_embedding",
        "encoder_Wemb": "source_embedding",
        "decoder_ff_logit_out_W": "logits/kernel",
        "decoder_ff_logit_out_Wt": "logits/kernel",
        "decoder_ff_logit_out_b": "logits/bias",
    }
    if name in special:
        return special[name]
    if match := re.fullmatch(r"(encoder|decoder)_top_ln_(scale|bias)(?:_pre)?", name):
        return f"{match[1]}/final_norm/{_KINDS[match[2]]}"
    if match := re.fullmatch(r"(encoder|decoder)_l(\d+)_(self|context|ffn)_(\w+)", name):
        layer = f"{match[1]}/{int(match[2]) - 1}/{_SUBLAYERS[match[3]]}"
        if norm := re.fullmatch(r"(?:Wo|ffn)_ln_(scale|bias)(?:_pre)?", match[4]):
            return f"{layer}/norm/{_KINDS[norm[1]]}"
        if dense := re.fullmatch(r"([Wb])([qkvo12])", match[4]):
            return f"{layer}/{_PARTS[dense[2]]}/{_KINDS[dense[1]]}"
    raise ConfigError(f"the weight {name} is not one of a Transformer of this package")


def _vocabularies(
    folder: pathlib.Path, paths: Sequence[pathlib.Path], sizes: Sequence[int]
) -> list[tuple[pathlib.Path, Vocabulary]]:
    """The path of each language's SentencePiece model, and its vocabulary."""
    found = []
    for side, path, size in zip(("source", "target"), paths, sizes, strict=True):
        if path.suffix == ".spm":
            with naming_source(path):
                ids = {piece: i for i, piece in enumerate(pieces_of(read_bytes(path)))}
            found.append((path, Vocabulary.of(ids, path, size)))
        else:
            found.append((folder / f"{side}.spm", Vocabulary.of(_read_ids(path), path, size)))
    return found


def _vocabulary_paths(folder: pathlib.Path, settings: dict[str, Any]) -> list[pathlib.Path]:
    names = settings.get("vocabs")
    if isinstance(names, list) and names:
        # They were written where the model was trained.
        return [folder / pathlib.PurePath(str(name)).name for name in names]
    for pattern in ("*vocab*.yml", "*.spm"):
        if paths := sorted(folder.glob(pattern)):
            break
    else:
        raise ConfigError(f"{folder}: the vocabulary is missing, *vocab*.yml or *.spm")
    if len(paths) > 2:
        raise ConfigError(f"{folder}: more than two vocabularies: {', '.join(path.name for path in paths)}")
    return paths


def _read_ids(path: pathlib.Path) -> dict[str, int]:
    content = read_bytes(path)
    try:
        # Every scalar is text; yaml-cpp writes "yes" and "1" without quotes.
        values = yaml.load(content.decode(), yaml.CBaseLoader)
        return {str(piece): int(token_id) for piece, token_id in values.items()}
    except (yaml.YAMLError, ValueError, AttributeError, TypeError):
        raise ConfigError(f"{path}: it must map pieces to ids") from None


def _decoding(settings: dict[str, Any]) -> DecodingConfig:
    beam_size, exponent = settings.get("beam-size", 6), settings.get("normalize", 0.0)
    unknown = settings.get("allow-unk", False) is True
    if settings.get("word-penalty"):
        raise ConfigError(f"decoder.yml: the option word-penalty: {shown(settings['word-penalty'])} is not supported")
    with naming_source("decoder.yml"):
        return DecodingConfig(
            beam_size=beam_size, length_penalty=float(exponent), forbidden_tokens="special" if unknown else "unknown"
        )
