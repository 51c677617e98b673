"""Marian's own format: model.npz, which holds its configuration, and vocabularies as .spm or .yml
files."""

import io
import pathlib
import re
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import yaml

from ..checks import require, shown
from ..config import Config, DecodingConfig, TransformerConfig
from ..config.yaml_file import parse_value, read_sections
from ..errors import ConfigError, InvalidFileError
from ..model_dir.files import UNREADABLE
from ..tokenizers import Tokenizer, TokenizerPair
from ..tokenizers.sentencepiece import parse_model
from .pretrained_model import (
    PretrainedModel,
    Tokenizers,
    array_name,
    as_weight,
    option,
    read_bytes,
    read_tokenizer,
    reading,
    require_file,
    require_supported,
    tie_embeddings,
)

_CONFIG = "special:model.yml"
_ACTIVATION = "transformer-ffn-activation"
# The supported values of each option; a missing option has the first.
_SUPPORTED: dict[str, tuple[object, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    _ACTIVATION: ("relu", "swish"),
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
_NORMALIZATION = (
    "transformer-preprocess",
    "transformer-postprocess",
    "transformer-postprocess-top",
)
_NORM_FIRST: dict[tuple[str, ...], bool] = {("", "dan", ""): False, ("n", "da", "n"): True}
_SUBLAYERS = {"self": "attention", "context": "source_attention", "ffn": "feed_forward"}
_PARTS = {"q": "query", "k": "key", "v": "value", "o": "output", "1": "hidden", "2": "output"}
_KINDS = {"W": "kernel", "b": "bias", "scale": "gamma", "bias": "beta"}
# Marian does not limit the length of sequences.
_MAX_LENGTH = 512
# Weights hardly become smaller when they are compressed.
_MAX_COMPRESSION = 20


class MarianFiles(NamedTuple):
    """The files of a Marian model, and what its decoder.yml holds, if there is one."""

    model: pathlib.Path
    vocabularies: tuple[pathlib.Path, pathlib.Path]  # of source and target, which may be the same
    settings_path: pathlib.Path | None
    settings: Mapping[str, object]


def read(folder: pathlib.Path) -> PretrainedModel:
    """Reads a folder with a Marian model, its vocabularies and, if there is one, its
    decoder.yml."""
    path, vocabularies, settings_path, settings = find_files(folder)
    arrays = _read_npz(path)
    with reading(path):
        options = _options(arrays)
        weights = _weights(arrays)
    sizes = [
        len(weights.get(f"{side}_embedding", weights["target_embedding"]))
        for side in ("source", "target")
    ]
    paths = folder / "source.spm", folder / "target.spm"
    both = [_read_tokenizer(*files) for files in zip(paths, vocabularies, sizes, strict=True)]
    with reading(path):
        tokenizers = Tokenizers.of(*both)
        if "source_embedding" not in weights and tokenizers.source_rows != tokenizers.target_rows:
            # The file has one table, in which ids mean different pieces for the source and for the
            # target.
            weights["source_embedding"] = weights["target_embedding"]
        model = _model(options, tokenizers.pair, weights)
    with reading(settings_path or folder):
        config = Config(model, tokenizers.config, _decoding(settings))
    return PretrainedModel(
        path, config, tokenizers.pair, weights, tokenizers.source_rows, tokenizers.target_rows
    )


def find_files(folder: pathlib.Path) -> MarianFiles:
    """Finds the files of a Marian model; an InvalidFileError if there is none, or more than one
    that it could be."""
    models = sorted(
        path for path in folder.glob("*.npz") if not path.name.endswith(".optimizer.npz")
    )
    models = [path for path in models if path.name == "model.npz"] or models
    if len(models) != 1:
        names = ", ".join(path.name for path in models) or "none"
        raise InvalidFileError(f"{folder}: there must be one model, *.npz; found {names}")
    candidates = (folder / "decoder.yml", *sorted(folder.glob("*.decoder.yml")))
    settings_path = next(filter(pathlib.Path.is_file, candidates), None)
    try:
        settings = read_sections(settings_path) if settings_path else {}
    except ConfigError as error:
        raise InvalidFileError(str(error)) from None
    paths = _vocabulary_paths(folder, settings)
    return MarianFiles(models[0], (paths[0], paths[-1]), settings_path, settings)


def _read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file, which must not claim to hold more than the file's size
    explains."""
    require_file(path)
    with reading(path, *UNREADABLE), zipfile.ZipFile(path) as archive:
        members, num_bytes = archive.infolist(), path.stat().st_size
        claimed = sum(member.file_size for member in members)
        if claimed > _MAX_COMPRESSION * num_bytes:
            raise ConfigError(
                f"it claims to hold {claimed:,} bytes, which cannot be {num_bytes:,} compressed "
                f"ones"
            )
        return {
            array_name(member.filename): np.lib.format.read_array(io.BytesIO(archive.read(member)))
            for member in members
        }


def _options(arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """The options that the model was trained with, if all of them are supported."""
    if _CONFIG not in arrays:
        raise ConfigError(f"not a Marian model: it has no {_CONFIG}")
    options = parse_value(arrays[_CONFIG].tobytes().rstrip(b"\0").decode("utf-8", "replace"))
    require(isinstance(options, dict), _CONFIG, "a mapping", options)
    require_supported(options, _SUPPORTED)
    if (normalization := _normalization(options)) not in _NORM_FIRST:
        text = ", ".join(
            f"{name}: {value!r}" for name, value in zip(_NORMALIZATION, normalization, strict=True)
        )
        raise ConfigError(f"the options {text} are not supported")
    return options


def _normalization(options: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(option(options, name, str, "") for name in _NORMALIZATION)


def _model(
    options: Mapping[str, object], tokenizers: TokenizerPair, weights: Mapping[str, np.ndarray]
) -> TransformerConfig:
    depths = option(options, "enc-depth", int), option(options, "dec-depth", int)
    return TransformerConfig(
        tokenizers.source.vocab_size,
        tokenizers.target.vocab_size,
        num_layers=depths[0],
        num_decoder_layers=None if depths[0] == depths[1] else depths[1],
        d_model=option(options, "dim-emb", int),
        d_ff=option(options, "transformer-dim-ffn", int),
        num_heads=option(options, "transformer-heads", int),
        activation=option(options, _ACTIVATION, str, "relu"),
        norm_first=_NORM_FIRST[_normalization(options)],
        positions="tensor2tensor",
        tie_embeddings=tie_embeddings(weights),
        attention_bias=True,
        logits_bias=True,
        max_length=_MAX_LENGTH,
    )


def _weights(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    weights = {}
    for name, array in arrays.items():
        if name.startswith("special:"):
            continue
        if array.dtype not in (np.float32, np.float16):
            raise ConfigError(f"the weight {name} of type {array.dtype} is not supported")
        ours = _our_name(name)
        weights[ours] = as_weight(ours, array.T if name.endswith("_Wt") else array)
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
    if match := re.fullmatch(r"(encoder|decoder)_l([0-9]{1,4})_(self|context|ffn)_(\w+)", name):
        layer = f"{match[1]}/{int(match[2]) - 1}/{_SUBLAYERS[match[3]]}"
        if norm := re.fullmatch(r"(?:Wo|ffn)_ln_(scale|bias)(?:_pre)?", match[4]):
            return f"{layer}/norm/{_KINDS[norm[1]]}"
        if dense := re.fullmatch(r"([Wb])([qkvo12])", match[4]):
            return f"{layer}/{_PARTS[dense[2]]}/{_KINDS[dense[1]]}"
    raise ConfigError(f"the weight {name} is not one of a Transformer of this package")


def _read_tokenizer(
    path: pathlib.Path, vocabulary: pathlib.Path, size: int
) -> tuple[Tokenizer, list[int | None]]:
    """Reads the SentencePiece model of a language, at `path` unless it is the vocabulary too."""
    content = read_bytes(vocabulary)
    if vocabulary.suffix == ".spm":
        with reading(vocabulary):
            ids = {piece.piece: i for i, piece in enumerate(parse_model(content).pieces)}
        return read_tokenizer(vocabulary, ids, vocabulary, size)
    try:
        # Every scalar is text: yaml-cpp writes "yes" and "1" without quotes. libyaml limits the
        # depth.
        ids = {
            piece: int(token_id) for piece, token_id in yaml.load(content, yaml.CBaseLoader).items()
        }
    except (yaml.YAMLError, ValueError, TypeError, AttributeError):
        raise InvalidFileError(f"{vocabulary}: it must map pieces to ids") from None
    return read_tokenizer(path, ids, vocabulary, size)


def _vocabulary_paths(folder: pathlib.Path, settings: Mapping[str, object]) -> list[pathlib.Path]:
    names = settings.get("vocabs")
    if isinstance(names, list) and names:
        # The paths are those of the machine that trained the model.
        return [folder / pathlib.PurePath(str(name)).name for name in names]
    paths = sorted(folder.glob("*vocab*.yml")) or sorted(folder.glob("*.spm"))
    if not paths:
        raise InvalidFileError(f"{folder}: the vocabulary is missing, *vocab*.yml or *.spm")
    if len(paths) > 2:
        raise InvalidFileError(
            f"{folder}: more than two vocabularies: {', '.join(path.name for path in paths)}"
        )
    return paths


def _decoding(settings: Mapping[str, object]) -> DecodingConfig:
    if penalty := option(settings, "word-penalty", float, 0.0):
        raise ConfigError(f"the option word-penalty: {shown(penalty)} is not supported")
    return DecodingConfig(
        beam_size=option(settings, "beam-size", int, 6),
        length_penalty=option(settings, "normalize", float, 0.0),
        forbidden_tokens="special" if option(settings, "allow-unk", bool, False) else "unknown",
    )
