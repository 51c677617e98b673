"""Signatures of a SavedModel, which are thin wrappers around functions of the translator's graph.

The first dimension of every output is the batch, as the row format of the REST API requires.
Outputs whose length depends on the text are padded.

Functions that search also return hidden outputs, which are not in the SavedModel's signatures. Only
the proof of an export reads them, so they cost a server nothing.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import tensorflow as tf

from keras_transformer.config.values import SignatureName, listed
from keras_transformer.tensors import Tensor
from keras_transformer.translation import Translator
from keras_transformer.translation.documents import MAX_SENTENCES, MAX_TOKENS
from keras_transformer.translation.graph import TranslationGraph
from keras_transformer.translation.search import TranslationTensors
from keras_transformer.translation.searched_model import FoundTokens

# Hidden outputs. Their names come after those of all other outputs.
HIDDEN_SCORES = "~score"
HIDDEN_TOKENS = "~token_id"
HIDDEN_MARGINS = "~margin"

Texts = Annotated[Tensor, "string (batch,)"]
PaddedIds = Annotated[Tensor, "int32 (batch, length)"]
Limits = Annotated[Tensor, "int32 (batch,)"]
_SPECS = {
    "text": tf.TensorSpec([None], tf.string, "text"),
    "prefix": tf.TensorSpec([None], tf.string, "prefix"),
    "tag": tf.TensorSpec([None], tf.string, "tag"),
    "source": tf.TensorSpec([None], tf.string, "source"),
    "target": tf.TensorSpec([None], tf.string, "target"),
    "max_length": tf.TensorSpec([None], tf.int32, "max_length"),
    "token_id": tf.TensorSpec([None, None], tf.int32, "token_id"),
}


class Signature(NamedTuple):
    """A function of a SavedModel that clients can call."""

    description: str
    # Computes the outputs, by name, from the translator's graph and the inputs.
    function: Callable[..., dict[str, Tensor]]
    # Descriptions of the outputs that clients see, by name.
    outputs: dict[str, str]
    # Creates values for the inputs from texts.
    example: Callable[[Sequence[str | bytes]], dict[str, Sequence[object]]] = lambda texts: {
        "text": texts
    }
    # Whether the search can be compiled. Searches with prefixes cannot be compiled.
    is_compilable: bool = False

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """The inputs of the function besides the graph, by name."""
        _, *names = inspect.signature(self.function).parameters
        return {name: _SPECS[name] for name in names}

    def request(self, texts: Sequence[str | bytes]) -> dict[str, tf.Tensor]:
        """Returns the inputs of a request that contains the texts."""
        values = self.example(texts)
        return {name: tf.constant(values[name], spec.dtype) for name, spec in self.inputs.items()}


def _translate(graph: TranslationGraph, text: Texts) -> dict[str, Tensor]:
    return _best(graph, graph.search(text))


def _translate_n_best(graph: TranslationGraph, text: Texts) -> dict[str, Tensor]:
    results = graph.search(text, n_best=graph.decoding.beam_size)
    # JSON cannot represent -inf.
    scores = tf.maximum(results.scores, tf.float32.min)
    return {
        "text": results.texts,
        "score": scores,
        **_source(graph, results.source_lengths),
        **_hidden(results),
    }


def _translate_with_prefix(
    graph: TranslationGraph, text: Texts, prefix: Texts, max_length: Limits
) -> dict[str, Tensor]:
    return _best(graph, graph.search(text, prefixes=prefix, max_lengths=max_length))


def _translate_with_tag(graph: TranslationGraph, text: Texts, tag: Texts) -> dict[str, Tensor]:
    return _best(graph, graph.search(text, tags=tag))


def _translate_document(graph: TranslationGraph, text: Texts) -> dict[str, Tensor]:
    results = graph.translate_documents(text)
    return {"text": results.texts, "truncated": results.was_cut, **_hidden(results.sentences)}


def _translate_tokens(graph: TranslationGraph, token_id: PaddedIds) -> dict[str, Tensor]:
    results = graph.search_token_ids(token_id)
    return {
        "token_id": results.token_ids[:, 0],
        "score": results.scores[:, 0],
        **_hidden(results),
    }


def _score(graph: TranslationGraph, source: Texts, target: Texts) -> dict[str, Tensor]:
    scores = graph.score(source, target)
    return {
        "log_prob": scores.log_probs,
        "token_log_prob": scores.token_log_probs,
        **_pair(graph, scores.source_lengths, scores.target_lengths),
    }


def _align(graph: TranslationGraph, source: Texts, target: Texts) -> dict[str, Tensor]:
    results = graph.align(source, target)
    return {
        "source_token": results.source.pieces,
        "target_token": results.target.pieces,
        "position": results.positions,
        "attention": results.attention,
        **_pair(graph, results.source.lengths, results.target.lengths),
    }


def _tokenize(graph: TranslationGraph, text: Texts) -> dict[str, Tensor]:
    tokens = graph.tokenize(text)
    return {
        "token": tokens.pieces,
        "token_id": tokens.token_ids,
        **_source(graph, tokens.lengths),
    }


def _detokenize(graph: TranslationGraph, token_id: PaddedIds) -> dict[str, Tensor]:
    return {"text": graph.detokenize(token_id)}


def _encode(graph: TranslationGraph, text: Texts) -> dict[str, Tensor]:
    results = graph.encode(text)
    return {"embedding": results.vectors, **_source(graph, results.source_lengths)}


def _best(graph: TranslationGraph, results: TranslationTensors) -> dict[str, Tensor]:
    return {
        "text": results.texts[:, 0],
        "score": results.scores[:, 0],
        **_source(graph, results.source_lengths),
        **_hidden(results),
    }


def _hidden(results: FoundTokens | TranslationTensors) -> dict[str, Tensor]:
    """Returns the outputs of a search for the proof. Their names come last in sorted order."""
    hidden = {HIDDEN_SCORES: results.scores, HIDDEN_TOKENS: results.token_ids}
    return hidden if results.margins is None else {**hidden, HIDDEN_MARGINS: results.margins}


def _source(graph: TranslationGraph, lengths: Tensor) -> dict[str, Tensor]:
    return {
        "source_length": tf.cast(lengths, tf.int32),
        "truncated": lengths > graph.model.config.max_length,
    }


def _pair(
    graph: TranslationGraph, source_lengths: Tensor, target_lengths: Tensor
) -> dict[str, Tensor]:
    return {
        **_source(graph, tf.maximum(source_lengths, target_lengths)),
        "source_length": tf.cast(source_lengths, tf.int32),
        "target_length": tf.cast(target_lengths, tf.int32),
    }


_SOURCE = {
    "source_length": (
        "int (batch,), the number of tokens of the text with its end token, before it was truncated"
    ),
    "truncated": "bool (batch,), whether the text was too long and its end was not read",
}
_PAIR = {
    "source_length": (
        "int (batch,), the number of tokens of the source with its end token, "
        "before it was truncated"
    ),
    "target_length": (
        "int (batch,), the number of tokens of the target with its end token, "
        "before it was truncated"
    ),
    "truncated": (
        "bool (batch,), whether one of the two texts was too long and its end was not read"
    ),
}

_TRANSLATE = Signature(
    "Translates texts.",
    _translate,
    {
        "text": "string (batch,), the translation, empty for a blank text",
        "score": "float (batch,), its log probability, divided by the length penalty",
        **_SOURCE,
    },
    is_compilable=True,
)

# `serving_default`, which servers call if a request names no signature, comes first.
SIGNATURES: dict[SignatureName, Signature] = {
    "serving_default": _TRANSLATE,
    "translate": _TRANSLATE,
    "translate_n_best": Signature(
        "Returns several translations of each text, as many as the beam size.",
        _translate_n_best,
        {
            "text": "string (batch, beam size), the translations, the best first",
            "score": (
                "float (batch, beam size), their log probabilities, divided by the length penalty; "
                "about -3.4e38 where a translation is missing"
            ),
            **_SOURCE,
        },
        is_compilable=True,
    ),
    "translate_with_prefix": Signature(
        "Translates texts; each translation begins with a given prefix, "
        "which should end at a word boundary. "
        "`max_length` is the maximum number of tokens of a translation with its prefix and its "
        "end token, or 0 for the default limit.",
        _translate_with_prefix,
        {
            "text": "string (batch,), the translation with its prefix",
            "score": (
                "float (batch,), the log probability of what comes after the prefix, "
                "divided by the length penalty"
            ),
            **_SOURCE,
        },
        lambda texts: {
            "text": texts,
            "prefix": [text[:i] for i, text in enumerate(texts)],
            "max_length": [7 * (i % 2) for i, _ in enumerate(texts)],
        },
    ),
    "translate_document": Signature(
        "Translates documents sentence by sentence. "
        "The white space between sentences is kept; "
        "a sentence that is too long is divided at commas or spaces.",
        _translate_document,
        {
            "text": "string (batch,), the translation",
            "truncated": (
                "bool (batch,), whether a part of the text was not read: an overlong word, "
                f"or text after {MAX_SENTENCES:,} sentences or {MAX_TOKENS:,} tokens"
            ),
        },
        is_compilable=True,
    ),
    "translate_tokens": Signature(
        "Translates texts that the client splits into tokens and joins again. "
        "Its graph needs no tensorflow-text.",
        _translate_tokens,
        {
            "token_id": (
                "int (batch, length), the ids of the translation's tokens, "
                "with the end token, padded with zeros"
            ),
            "score": "float (batch,), as in `translate`",
        },
        lambda texts: {
            "token_id": [
                [4 + len(text) % 50, 9 + i, -1, 2**31 - 1, 3] for i, text in enumerate(texts)
            ]
        },
        is_compilable=True,
    ),
    "score": Signature(
        "Computes the log probabilities of given translations.",
        _score,
        {
            "log_prob": "float (batch,), the natural logarithm of the target's probability",
            "token_log_prob": (
                "float (batch, target length), the log probabilities of the target's tokens and "
                "the end token, padded with zeros"
            ),
            **_PAIR,
        },
        lambda texts: {"source": texts, "target": texts[::-1]},
    ),
    "align": Signature(
        "Aligns the tokens of a given translation with the tokens of its source, "
        "using the decoder's attention.",
        _align,
        {
            "source_token": (
                "string (batch, source length), the tokens of the source, "
                'with the end token, padded with ""'
            ),
            "target_token": (
                "string (batch, target length), the tokens of the target, "
                'with the end token, padded with ""'
            ),
            "position": (
                "int (batch, target length), for each token of the target the position in the "
                "source, from 0, that it attends to most, padded with -1"
            ),
            "attention": (
                "float (batch, target length, source length), rows that sum to 1: how much each "
                "token of the target attends to each of the source, padded with rows of zeros"
            ),
            **_PAIR,
        },
        lambda texts: {"source": texts, "target": texts[::-1]},
    ),
    "tokenize": Signature(
        "Splits texts of the source language into the tokens that the model reads.",
        _tokenize,
        {
            "token": 'string (batch, length), the tokens, with the end token, padded with ""',
            "token_id": "int (batch, length), their ids, padded with zeros",
            **_SOURCE,
        },
    ),
    "detokenize": Signature(
        "Joins ids of tokens into texts of the target language. "
        "Special ids, such as 0, and ids outside the vocabulary are ignored.",
        _detokenize,
        {"text": "string (batch,), the texts"},
        lambda texts: {
            "token_id": [[4 + i, -1, 2 * i, 2**31 - 1, 9, 3, 0] for i, _ in enumerate(texts)]
        },
    ),
    "encode": Signature(
        "Computes vectors by which similar texts can be found.",
        _encode,
        {
            "embedding": (
                "float (batch, d_model), the mean of the encoder's outputs over the tokens of the "
                "text, with the end token"
            ),
            **_SOURCE,
        },
    ),
}


def signatures_of(translator: Translator) -> dict[SignatureName, Signature]:
    """Returns `SIGNATURES` and, if the translator has tags, `translate_with_tag`."""
    tags = list(translator.tokenizers.source.tags)
    if not tags:
        return SIGNATURES

    def example(texts: Sequence[str | bytes]) -> dict[str, Sequence[object]]:
        values = ["", *tags]
        return {"text": texts, "tag": [values[i % len(values)] for i, _ in enumerate(texts)]}

    with_tag = Signature(
        "Translates texts, each with a tag in front, such as the language to translate into; "
        f"an empty tag stands for {translator.decoding.tag or 'none'}. "
        f"The tags are {listed(tags)}; any other tag is an error.",
        _translate_with_tag,
        SIGNATURES["translate"].outputs,
        example,
        is_compilable=True,
    )
    return {**SIGNATURES, "translate_with_tag": with_tag}
