"""Exports a translator to Hugging Face's `transformers`, in a format that `import_model` reads."""

import dataclasses
import json
import logging
import os
import pathlib
import re
from typing import Any, Literal, NamedTuple

import numpy as np
from keras import ops
from safetensors.numpy import save

from keras_transformer import __version__
from keras_transformer.checks import require
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir.files import temporary_beside
from keras_transformer.models.transformer import Transformer, named_weights
from keras_transformer.pretrained import import_model
from keras_transformer.pretrained.hugging_face import ACTIVATIONS, EPSILON, their_name
from keras_transformer.pretrained.pretrained_model import interleaved, model_axis
from keras_transformer.tensors import Tensor
from keras_transformer.tokenizers import (
    PretrainedSentencePieceTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    TokenizerPair,
)
from keras_transformer.tokenizers.normalization import NormalForm
from keras_transformer.tokenizers.sentencepiece import (
    ESCAPES,
    SPACE,
    ModelProto,
    SentencePiece,
    parse_model,
)
from keras_transformer.translation import Translator

from .publishing import PROBES, Facts, publish, require_exportable, transformer_of, verify_scores

_log = logging.getLogger(__name__)

# Splits text that looks like a special token or a byte token. Otherwise, the Unigram model of
# `tokenizers` would read it as that token.
_DIVIDED = "<(?=/s>|s>|pad>|unk>|0x[0-9A-F]{2}>)"
_ARCHITECTURES = {"marian": "MarianMTModel", "blenderbot": "BlenderbotForConditionalGeneration"}


class _WrittenTokenizers(NamedTuple):
    """The tokenizers of a translator in Hugging Face's format."""

    files: dict[str, bytes]  # file contents by name
    ids: list[int]  # our token id for each Hugging Face id, on both sides
    special_ids: dict[str, int]  # Hugging Face ids of "pad", "unk", "start" and "end"

    @property
    def pads_with_start(self) -> bool:
        """Whether decoding starts with the padding token, as in Marian models."""
        return self.special_ids["pad"] == self.special_ids["start"]


def export_hugging_face(
    translator: Translator,
    output: str | os.PathLike[str],
    version: int | None = None,
    facts: Facts | None = None,
) -> pathlib.Path:
    """Writes a Hugging Face model to `output/<version>/` and returns the path.

    You can load the folder with `from_pretrained`. It contains float32 weights, the tokenizer, the
    search settings and a model card. A model that normalizes after each sublayer, like the paper's,
    is exported as a `MarianMTModel`. A model that normalizes first is exported as a
    `BlenderbotForConditionalGeneration`, which has the same layers. The folder appears only after
    `import_model` has imported it and the imported model has computed the same scores for test
    texts as the translator.

    Args:
        version: Version number. Defaults to None: one more than the highest version.
        facts: Facts for the model card. Defaults to None: all facts are unknown.

    Raises:
        ConfigError: Hugging Face does not support the model or its tokenizers, or the version
            exists or is not positive.
        VerificationError: The exported model and the translator compute different log
            probabilities.
    """
    model = transformer_of(translator)
    model_type = _model_type(model.config)
    tokenizers = _tokenizers(translator.tokenizers, model.config.max_length)
    _warn_of_search(translator)

    def write(directory: pathlib.Path) -> None:
        generation = _generation(translator.decoding, model.config, tokenizers)
        files = {
            "config.json": _to_json(_config(model.config, model_type, tokenizers)),
            "generation_config.json": _to_json(generation),
            **tokenizers.files,
            # `transformers` refuses a file whose metadata does not name the format.
            "model.safetensors": save(_weights(model, tokenizers), metadata={"format": "pt"}),
            "README.md": _card(translator, _ARCHITECTURES[model_type], facts or Facts()).encode(),
        }
        for name, content in files.items():
            (directory / name).write_bytes(content)
        _verify(directory, translator)

    return publish(output, version, write)


def _model_type(config: TransformerConfig) -> Literal["marian", "blenderbot"]:
    width, rest = divmod(config.d_model, config.num_heads)
    # In Hugging Face's classes, the width of a head is always d_model / num_heads.
    key_dims = (None,) if rest else (None, width)
    require_exportable(
        config,
        "Hugging Face",
        activation=ACTIVATIONS,
        positions=("sinusoidal", "tensor2tensor", "learned"),
        key_dim=key_dims,
        value_dim=key_dims,
    )
    rule = f"at most {EPSILON:g}, the epsilon of Hugging Face"
    require(config.epsilon <= EPSILON, "model.epsilon", rule, config.epsilon)
    if not config.norm_first:
        return "marian"
    rule = "all for Hugging Face if norm_first=true"
    require(config.tie_embeddings == "all", "model.tie_embeddings", rule, config.tie_embeddings)
    return "blenderbot"


def _warn_of_search(translator: Translator) -> None:
    """Logs the differences between Hugging Face's search and ours."""
    decoding = translator.decoding
    if decoding.beam_size > 1 and decoding.length_penalty:
        penalty = f"{decoding.length_penalty:g}"
        _log.warning(
            f"Hugging Face divides scores by length ** {penalty}, "
            f"not by ((5 + length) / 6) ** {penalty}: some translations may differ; "
            "to avoid this, use --length-penalty 0"
        )
    if translator.candidates is not None:
        _log.warning(
            "Hugging Face searches the whole vocabulary, not the shortlist: "
            "some translations may differ"
        )
    if decoding.tag is not None:
        (tag_id,) = translator.graph.codec.tag_ids
        _log.warning(
            "Hugging Face does not add tags: "
            f"for {decoding.tag}, insert token {tag_id} before the tokens of each source"
        )
    if decoding.placeholders:
        _log.warning(
            "Hugging Face does not support placeholders: URLs, {names} and tags may change"
        )
    if decoding.terms is not None:
        _log.warning(
            "Hugging Face does not support glossaries: terms may be translated differently"
        )


def _config(
    config: TransformerConfig, model_type: str, tokenizers: _WrittenTokenizers
) -> dict[str, Any]:
    encoder_layers, decoder_layers = config.depths
    special = tokenizers.special_ids
    values = {
        "activation_dropout": config.activation_dropout,
        "activation_function": config.activation,
        "architectures": [_ARCHITECTURES[model_type]],
        "attention_dropout": config.attention_dropout,
        "bos_token_id": None,
        "d_model": config.d_model,
        "decoder_attention_heads": config.num_heads,
        "decoder_ffn_dim": config.d_ff,
        "decoder_layers": decoder_layers,
        "decoder_start_token_id": special["start"],
        "decoder_vocab_size": len(tokenizers.ids),
        "dropout": config.dropout,
        "dtype": "float32",
        "encoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "encoder_layers": encoder_layers,
        "eos_token_id": special["end"],
        "forced_eos_token_id": None,
        "is_encoder_decoder": True,
        "max_position_embeddings": config.max_length,
        "model_type": model_type,
        "pad_token_id": special["pad"],
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings == "all",
        "tie_word_embeddings": config.tie_embeddings != "none",
        "use_cache": True,
        "vocab_size": len(tokenizers.ids),
    }
    if model_type == "blenderbot":
        # By default, Blenderbot never repeats three tokens of the source in a row.
        values["encoder_no_repeat_ngram_size"] = 0
    return dict(sorted(values.items()))


def _generation(
    decoding: DecodingConfig, config: TransformerConfig, tokenizers: _WrittenTokenizers
) -> dict[str, Any]:
    special = tokenizers.special_ids
    forbidden = {
        "none": {special["pad"]} if tokenizers.pads_with_start else set(),
        "special": {special["pad"], special["start"]},
        "unknown": {special["pad"], special["start"], special["unk"]},
    }[decoding.forbidden_tokens]
    settings: dict[str, object] = {
        "decoder_start_token_id": special["start"],
        "do_sample": False,
        "eos_token_id": special["end"],
        "max_new_tokens": config.max_length,
        "num_beams": decoding.beam_size,
        "pad_token_id": special["pad"],
    }
    if decoding.beam_size > 1:
        # With "never", a search ends when no hypothesis can become better than the best hypothesis.
        settings |= {"early_stopping": "never", "length_penalty": decoding.length_penalty}
    if forbidden:
        settings["bad_words_ids"] = [[token_id] for token_id in sorted(forbidden)]
    if decoding.no_repeat_ngram_size:
        settings["no_repeat_ngram_size"] = decoding.no_repeat_ngram_size
    if decoding.repetition_penalty != 1:
        settings["repetition_penalty"] = decoding.repetition_penalty
    if decoding.min_length > 1:
        # Hugging Face does not count the end token.
        settings["min_new_tokens"] = decoding.min_length - 1
    return dict(sorted(settings.items()))


def _weights(model: Transformer, tokenizers: _WrittenTokenizers) -> dict[str, np.ndarray]:
    config = model.config
    weights = {name: _in_their_order(name, variable) for name, variable in named_weights(model)}
    ids = tokenizers.ids
    logits_bias = _logits_bias(weights.pop("logits/bias", None), tokenizers)
    arrays = {"final_logits_bias": logits_bias[None]}
    target_embedding = weights.pop("target_embedding")[ids]
    if config.tie_embeddings == "all":
        arrays["model.shared.weight"] = target_embedding
    else:
        arrays["model.encoder.embed_tokens.weight"] = weights.pop("source_embedding")[ids]
        arrays["model.decoder.embed_tokens.weight"] = target_embedding
    if config.tie_embeddings == "none":
        arrays["lm_head.weight"] = weights.pop("logits/kernel").T[ids]
    if not (config.positions == "sinusoidal" and not config.norm_first):
        # Blenderbot needs a table of positions. Marian computes sinusoids if the file has no table.
        weights.pop("source_positions", None)
        weights.pop("target_positions", None)
        positions = ops.arange(config.max_length)
        arrays["model.encoder.embed_positions.weight"] = _in_their_order(
            "source_positions", model.source_embedding.encode_positions(positions)
        )
        arrays["model.decoder.embed_positions.weight"] = _in_their_order(
            "target_positions", model.target_embedding.encode_positions(positions)
        )
    for name, array in weights.items():
        arrays[their_name(name)] = array.T
        if name.endswith("/kernel"):
            bias = name.removesuffix("kernel") + "bias"
            if bias not in weights:
                # Every projection in these classes has a bias.
                arrays[their_name(bias)] = np.zeros(array.shape[1], "float32")
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _in_their_order(name: str, weight: Tensor) -> np.ndarray:
    """Puts all sines before all cosines along the model's width, as Hugging Face does."""
    array = ops.convert_to_numpy(weight)
    axis = model_axis(name)
    if axis is None:
        return array
    return np.take(array, np.argsort(interleaved(array.shape[axis])), axis=axis)


def _logits_bias(bias: np.ndarray | None, tokenizers: _WrittenTokenizers) -> np.ndarray:
    ids = list(tokenizers.ids)
    if bias is None:
        return np.zeros(len(ids), "float32")
    if tokenizers.pads_with_start:
        # Padding gets the bias of our padding token. The bias of our start token only keeps search
        # from choosing the start token.
        ids[tokenizers.special_ids["pad"]] = Tokenizer.pad_id
    return bias[ids]


def _verify(path: pathlib.Path, translator: Translator) -> None:
    with temporary_beside(path.with_name("imported"), is_directory=True) as temporary:
        received = Translator.load(import_model(path, temporary / "model")).score(PROBES, PROBES)
    verify_scores(received, translator, "the model that was written")


_EXAMPLE = """
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
inputs = tokenizer(["A dog runs."], return_tensors="pt", padding=True, truncation=True)
tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
```
"""


def _card(translator: Translator, architecture: str, facts: Facts) -> str:
    metadata: dict[str, Any] = {}
    title = "# Translation model"
    if facts.languages:
        metadata["language"] = facts.languages.split("-")
        title += f" {facts.languages}"
    if facts.license:
        metadata["license"] = facts.license.lower()
    metadata["library_name"] = "transformers"
    metadata["pipeline_tag"] = "translation"
    num_parameters = translator.model.config.num_parameters
    lines = [
        "---",
        *(f"{name}: {json.dumps(value)}" for name, value in metadata.items()),
        "---",
        title,
        "",
        f"A Transformer of {num_parameters:,} parameters, as a `{architecture}`.",
        *_EXAMPLE.splitlines(),
        "",
        "## Training",
        "",
        f"{facts.training or 'Unknown'}.",
        "",
        "## Quality",
        "",
        *([f"- {score}" for score in facts.scores] or ["Not measured."]),
        "",
        "## Search",
        "",
        "The scores were measured with the following settings of "
        f"keras3-transformer {__version__}, which exported the model. "
        "`generation_config.json` contains their closest equivalents.",
        "",
        "```json",
        _to_json(dataclasses.asdict(translator.decoding)).decode(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _tokenizers(tokenizers: TokenizerPair, max_length: int) -> _WrittenTokenizers:
    """Returns tokenizers in Hugging Face's format.

    A SentencePiece model that was trained with this package becomes a tokenizer.json, which works
    without SentencePiece. The tokenizers of an imported model are exported as the files that they
    were imported from. `max_length` includes the end token.
    """
    source, target = tokenizers
    if isinstance(source, PretrainedSentencePieceTokenizer) and isinstance(
        target, PretrainedSentencePieceTokenizer
    ):
        return _marian_tokenizers(source, target, max_length)
    if not isinstance(target, SentencePieceTokenizer):
        raise ConfigError(
            "tokenizer.kind must be bpe or unigram for Hugging Face; "
            "received tokenizer.kind='wordpiece'"
        )
    rule = "true for Hugging Face, unless the model was imported"
    require(tokenizers.is_shared, "tokenizer.shared", rule, False)
    config = _tokenizer_config("PreTrainedTokenizerFast", max_length)
    config["bos_token"] = "<s>"
    config["model_input_names"] = ["input_ids", "attention_mask"]
    files = {
        "tokenizer.json": _to_json(
            _tokenizer_json(parse_model(target.file_content), target.normalization)
        ),
        "tokenizer.model": target.file_content,
        "tokenizer_config.json": _to_json(config),
    }
    special_ids = {
        "pad": Tokenizer.pad_id,
        "unk": Tokenizer.unk_id,
        "start": Tokenizer.start_id,
        "end": Tokenizer.end_id,
    }
    return _WrittenTokenizers(files, list(range(target.vocab_size)), special_ids)


def _to_json(values: object) -> bytes:
    """Returns the content of a JSON file, formatted as in `transformers`."""
    return json.dumps(values, indent=2).encode()


def _tokenizer_config(name: str, max_length: int) -> dict[str, Any]:
    return {
        "tokenizer_class": name,
        "model_max_length": max_length,
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": False,
        # Read "</s>" in a text as plain text, not as the end token.
        "split_special_tokens": True,
    }


def _marian_tokenizers(
    source: PretrainedSentencePieceTokenizer,
    target: PretrainedSentencePieceTokenizer,
    max_length: int,
) -> _WrittenTokenizers:
    # Both sides use the same id for padding, so their vocabularies must have the same size.
    rule = f"source_vocab_size={source.vocab_size} for Hugging Face"
    require(
        source.vocab_size == target.vocab_size, "model.target_vocab_size", rule, target.vocab_size
    )
    is_shared = source.vocabulary == target.vocabulary
    config = _tokenizer_config("MarianTokenizer", max_length)
    config["separate_vocabs"] = not is_shared
    files = {
        "source.spm": source.original_model(),
        "target.spm": target.original_model(),
        "tokenizer_config.json": _to_json(config),
        "vocab.json": _vocabulary_json(source),
    }
    if not is_shared:
        files["target_vocab.json"] = _vocabulary_json(target)
    # Marian's ids begin with the end token and the unknown token. The last token is both padding
    # and start.
    ids = [Tokenizer.end_id, Tokenizer.unk_id, *range(4, target.vocab_size), Tokenizer.start_id]
    last = len(ids) - 1
    return _WrittenTokenizers(files, ids, {"pad": last, "unk": 1, "start": last, "end": 0})


def _vocabulary_json(tokenizer: PretrainedSentencePieceTokenizer) -> bytes:
    pieces = ["</s>", "<unk>", *tokenizer.vocabulary[4:], "<pad>"]
    return _to_json({piece: token_id for token_id, piece in enumerate(pieces)})


def _tokenizer_json(proto: ModelProto, normalization: NormalForm) -> dict[str, Any]:
    """Returns a `tokenizers` pipeline that yields the ids and texts of a SentencePieceTokenizer."""
    is_bpe = proto.trainer_spec.model_type == proto.trainer_spec.BPE
    special_pieces = [proto.pieces[token_id].piece for token_id in range(4)]
    added_tokens = [
        {
            "id": token_id,
            "content": piece,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token_id, piece in enumerate(special_pieces)
    ]
    escapes = [_replace(character, escape) for character, escape in ESCAPES.items()]
    unescapes = [_replace(escape, character) for character, escape in reversed(ESCAPES.items())]
    end = proto.pieces[Tokenizer.end_id].piece
    text = {"Sequence": {"id": "A", "type_id": 0}}
    second_text = {"Sequence": {"id": "B", "type_id": 0}}
    appended = {"SpecialToken": {"id": end, "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *([] if normalization == "none" else [{"type": normalization.upper()}]),
                *escapes,
                {"type": "Prepend", "prepend": " "},
                _replace(" ", SPACE),
            ],
        },
        "pre_tokenizer": None if is_bpe else _splitter(proto),
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [text, appended],
            "pair": [text, second_text, appended],
            "special_tokens": {end: {"id": end, "ids": [Tokenizer.end_id], "tokens": [end]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                _replace(SPACE, " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
                *unescapes,
            ],
        },
        "model": _bpe(proto) if is_bpe else _unigram(proto),
    }


def _splitter(proto: ModelProto) -> dict[str, Any]:
    """Returns a step that splits text that looks like a special token, a tag or a placeholder."""
    patterns = [_DIVIDED]
    for entry in proto.pieces[4:]:
        if entry.type == SentencePiece.CONTROL:
            patterns.append(f"{re.escape(entry.piece[0])}(?={re.escape(entry.piece[1:])})")
    return {
        "type": "Split",
        "pattern": {"Regex": "|".join(patterns)},
        "behavior": "Isolated",
        "invert": False,
    }


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def _bpe(proto: ModelProto) -> dict[str, Any]:
    """Returns a BPE model that merges any two tokens that form a third, the most frequent first.

    SentencePiece does the same.
    """
    ids = {entry.piece: token_id for token_id, entry in enumerate(proto.pieces)}
    scores = {
        entry.piece: entry.score for entry in proto.pieces if entry.type == SentencePiece.NORMAL
    }
    merges = []
    for piece, score in scores.items():
        for end in range(1, len(piece)):
            left, right = piece[:end], piece[end:]
            if left in scores and right in scores:
                merges.append((-score, ids[left], [left, right]))
    return {
        "type": "BPE",
        "unk_token": proto.pieces[Tokenizer.unk_id].piece,
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": ids,
        "merges": [pair for *_, pair in sorted(merges)],
    }


def _unigram(proto: ModelProto) -> dict[str, Any]:
    lowest = min(entry.score for entry in proto.pieces)
    scores = [
        entry.score if entry.type == SentencePiece.NORMAL else lowest for entry in proto.pieces
    ]
    return {
        "type": "Unigram",
        "unk_id": Tokenizer.unk_id,
        "byte_fallback": True,
        "vocab": [[entry.piece, score] for entry, score in zip(proto.pieces, scores, strict=True)],
    }
