"""Reads the Marian format: model.npz with its configuration, and .spm or .yml vocabularies."""

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
from ..tokenizers import TokenizerPair
from ..tokenizers.sentencepiece import parse_model
from .pretrained_model import (
    ForeignTokenizers,
    PretrainedModel,
    TokenizerAndRows,
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
# Supported values of each option. A missing option has the first value.
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
# Options for normalization after the residual sum, as in the paper, or before each sublayer and
# after the last layer.
_NORMALIZATION = (
    "transformer-preprocess",
    "transformer-postprocess",
    "transformer-postprocess-top",
)
_NORM_FIRST: dict[tuple[str, ...], bool] = {("", "dan", ""): False, ("n", "da", "n"): True}
_SUBLAYERS = {"self": "self_attention", "context": "cross_attention", "ffn": "feed_forward"}
_PARTS = {"q": "query", "k": "key", "v": "value", "o": "output", "1": "hidden", "2": "output"}
_KINDS = {"W": "kernel", "b": "bias", "scale": "gamma", "bias": "beta"}
# Marian does not limit the length of sequences.
_MAX_LENGTH = 512
# A higher compression ratio is implausible, because weights hardly compress.
_MAX_COMPRESSION = 20


class MarianFiles(NamedTuple):
    """Files of a Marian model, and the content of its decoder.yml, if there is one."""

    model: pathlib.Path
    vocabularies: tuple[pathlib.Path, pathlib.Path]  # source and target, which may be the same file
    settings_path: pathlib.Path | None
    settings: Mapping[str, object]


def read(folder: pathlib.Path) -> PretrainedModel:
    """Reads a folder with a Marian model, its vocabularies and an optional decoder.yml."""
    path, vocabularies, settings_path, settings = find_files(folder)
    arrays = _read_npz(path)
    with reading(path):
        options = _options(arrays)
        weights = _weights(arrays)
    target_size = len(weights["target_embedding"])
    source_size = len(weights.get("source_embedding", weights["target_embedding"]))
    source = _read_tokenizer(folder / "source.spm", vocabularies[0], source_size)
    target = _read_tokenizer(folder / "target.spm", vocabularies[1], target_size)
    with reading(path):
        tokenizers = ForeignTokenizers.of(source, target)
        if "source_embedding" not in weights and tokenizers.source_rows != tokenizers.target_rows:
            # Source and target share an embedding, but their ids belong to different pieces.
            weights["source_embedding"] = weights["target_embedding"]
        model = _model(options, tokenizers.pair, weights)
    with reading(settings_path or folder):
        config = Config(model, tokenizers.config, _decoding(settings))
    rows = tokenizers.source_rows, tokenizers.target_rows
    return PretrainedModel(path, config, tokenizers.pair, weights, *rows)


def find_files(folder: pathlib.Path) -> MarianFiles:
    """Finds the files of a Marian model.

    Raises:
        InvalidFileError: If there is no model, or more than one candidate.
    """
    models = [path for path in folder.glob("*.npz") if not path.name.endswith(".optimizer.npz")]
    if folder / "model.npz" in models:
        models = [folder / "model.npz"]
    if len(models) != 1:
        names = ", ".join(path.name for path in sorted(models)) or "none"
        raise InvalidFileError(f"{folder}: there must be one model, *.npz; found {names}")
    candidates = [folder / "decoder.yml", *sorted(folder.glob("*.decoder.yml"))]
    settings_path = next((path for path in candidates if path.is_file()), None)
    try:
        settings = read_sections(settings_path) if settings_path else {}
    except ConfigError as error:
        raise InvalidFileError(str(error)) from None
    paths = _vocabulary_paths(folder, settings)
    return MarianFiles(models[0], (paths[0], paths[-1]), settings_path, settings)


def _read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file and checks that their size is plausible for the file."""
    require_file(path)
    arrays = {}
    with reading(path, *UNREADABLE), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        num_bytes = path.stat().st_size
        claimed = sum(member.file_size for member in members)
        if claimed > _MAX_COMPRESSION * num_bytes:
            raise ConfigError(
                f"it claims to hold {claimed:,} bytes, "
                f"too many for a compressed file of {num_bytes:,} bytes"
            )
        for member in members:
            name = array_name(member.filename)
            arrays[name] = np.lib.format.read_array(io.BytesIO(archive.read(member)))
    return arrays


def _options(arrays: Mapping[str, np.ndarray]) -> dict[str, object]:
    """Returns the training options of the model and checks that all are supported."""
    if _CONFIG not in arrays:
        raise ConfigError(f"not a Marian model: it has no {_CONFIG}")
    options = parse_value(arrays[_CONFIG].tobytes().rstrip(b"\0").decode("utf-8", "replace"))
    require(isinstance(options, dict), _CONFIG, "a mapping", options)
    require_supported(options, _SUPPORTED)
    normalization = _normalization(options)
    if normalization not in _NORM_FIRST:
        values = zip(_NORMALIZATION, normalization, strict=True)
        text = ", ".join(f"{name}: {value!r}" for name, value in values)
        raise ConfigError(f"the options {text} are not supported")
    return options


def _normalization(options: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(option(options, name, str, "") for name in _NORMALIZATION)


def _model(
    options: Mapping[str, object], tokenizers: TokenizerPair, weights: Mapping[str, np.ndarray]
) -> TransformerConfig:
    encoder_layers = option(options, "enc-depth", int)
    decoder_layers = option(options, "dec-depth", int)
    return TransformerConfig(
        tokenizers.source.vocab_size,
        tokenizers.target.vocab_size,
        num_layers=encoder_layers,
        num_decoder_layers=None if decoder_layers == encoder_layers else decoder_layers,
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
    match = re.fullmatch(r"(encoder|decoder)_top_ln_(scale|bias)(?:_pre)?", name)
    if match:
        side, kind = match.groups()
        return f"{side}/final_norm/{_KINDS[kind]}"
    match = re.fullmatch(r"(encoder|decoder)_l([0-9]{1,4})_(self|context|ffn)_(\w+)", name)
    if match:
        side, number, sublayer, weight = match.groups()
        prefix = f"{side}/{int(number) - 1}/{_SUBLAYERS[sublayer]}"
        match = re.fullmatch(r"(?:Wo|ffn)_ln_(scale|bias)(?:_pre)?", weight)
        if match:
            return f"{prefix}/norm/{_KINDS[match[1]]}"
        match = re.fullmatch(r"([Wb])([qkvo12])", weight)
        if match:
            return f"{prefix}/{_PARTS[match[2]]}/{_KINDS[match[1]]}"
    raise ConfigError(f"the weight {name} is not supported")


def _read_tokenizer(path: pathlib.Path, vocabulary: pathlib.Path, size: int) -> TokenizerAndRows:
    """Reads the SentencePiece model of a language from its .spm vocabulary or from `path`."""
    content = read_bytes(vocabulary)
    if vocabulary.suffix == ".spm":
        with reading(vocabulary):
            ids = {piece.piece: i for i, piece in enumerate(parse_model(content).pieces)}
        return read_tokenizer(vocabulary, ids, vocabulary, size)
    try:
        # Use a loader that reads every scalar as text, because yaml-cpp writes "yes" and "1"
        # without quotes. libyaml limits the nesting depth.
        values = yaml.load(content, yaml.CBaseLoader)
        ids = {piece: int(token_id) for piece, token_id in values.items()}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError):
        raise InvalidFileError(f"{vocabulary}: it must map pieces to ids") from None
    return read_tokenizer(path, ids, vocabulary, size)


def _vocabulary_paths(folder: pathlib.Path, settings: Mapping[str, object]) -> list[pathlib.Path]:
    names = settings.get("vocabs")
    if isinstance(names, list) and names:
        # The folders in these paths are from the machine that trained the model.
        return [folder / pathlib.PurePath(str(name)).name for name in names]
    paths = sorted(folder.glob("*vocab*.yml")) or sorted(folder.glob("*.spm"))
    if not paths:
        raise InvalidFileError(f"{folder}: the vocabulary is missing, *vocab*.yml or *.spm")
    if len(paths) > 2:
        names = ", ".join(path.name for path in paths)
        raise InvalidFileError(f"{folder}: more than two vocabularies: {names}")
    return paths


def _decoding(settings: Mapping[str, object]) -> DecodingConfig:
    penalty = option(settings, "word-penalty", float, 0.0)
    if penalty:
        raise ConfigError(f"the option word-penalty: {shown(penalty)} is not supported")
    return DecodingConfig(
        beam_size=option(settings, "beam-size", int, 6),
        length_penalty=option(settings, "normalize", float, 0.0),
        forbidden_tokens="special" if option(settings, "allow-unk", bool, False) else "unknown",
    )
