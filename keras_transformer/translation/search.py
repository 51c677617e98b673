"""Translations of tokenized sources, searched or drawn at random batch by batch, in the TensorFlow graph."""

from typing import Annotated, Any, NamedTuple, Protocol

import keras
import tensorflow as tf

from ..config import DecodingConfig, TransformerConfig
from ..decoding import (
    Decodable,
    Hypotheses,
    among,
    beam_search,
    greedy_search,
    places_among,
    sample,
    with_token_ids,
)
from ..tensors import Tensor
from ..tokenizers import Tokenizer
from .candidates import Candidates
from .length_batches import map_in_length_batches
from .prefixes import left_padded
from .sampling import Sampling

# Positions, including padding, of a batch; bounds memory.
_POSITIONS_PER_BATCH = 4096
# Batches of a request that may be searched side by side. Most operations of a search are too small to be shared
# among cores.
PARALLEL_SEARCHES = 4
# To use two cores, a request is divided in half, unless that makes batches smaller than this.
MIN_TEXTS_PER_BATCH = 16
# Tokens that a step of a search usually computes: a beam of 4 for each of 32 texts.
TOKENS_PER_STEP = 128
# What `decoding.forbidden_tokens` stands for.
_FORBIDDEN_IDS: dict[str, tuple[int, ...]] = {
    "none": (),
    "special": (Tokenizer.pad_id, Tokenizer.start_id),
    "unknown": (Tokenizer.pad_id, Tokenizer.start_id, Tokenizer.unk_id),
}


class TranslationModel(Decodable, Protocol):
    """What a translator needs of a model."""

    @property
    def config(self) -> TransformerConfig: ...

    @property
    def variables(self) -> list[keras.Variable]: ...


class Request(NamedTuple):
    """What is to be translated.

    Attributes:
        source: the tokens of each text, with end tokens.
        positions: what a text adds to a batch, see `map_in_length_batches`.
        max_lengths: the most tokens of each translation, without its prefix.
        prefix: the tokens that each translation begins with, or None.
        placeholders: which placeholders each text has, or None.
        sampling: Sampling, or None: the best translations are searched.
        candidates: Candidates, or None: translations may have all pieces.
    """

    source: Annotated[tf.RaggedTensor, "int32 (batch, None)"]
    positions: Annotated[Tensor, "int32 (batch,)"]
    max_lengths: Annotated[Tensor, "int32 (batch,)"]
    prefix: Annotated[tf.RaggedTensor, "int32 (batch, None)"] | None
    placeholders: Annotated[Tensor, "bool (batch, NUM_PLACEHOLDERS)"] | None
    sampling: Sampling | None
    candidates: Candidates | None


def search_tokens(
    model: TranslationModel, decoding: DecodingConfig, request: Request, n_best: int
) -> tuple[Annotated[Tensor, "int32 (batch, n_best, length)"], Annotated[Tensor, "float32 (batch, n_best)"]]:
    """Returns the tokens of the best translations of each text, padded with 0, and their scores.

    Args:
        model: TranslationModel, whose variables are read as tensors already.
        decoding: DecodingConfig.
        request: Request.
        n_best: int, at most the beam size; 1 with sampling.
    """
    width = tf.reduce_max(tf.concat([request.max_lengths, [1]], 0))

    def search_batch(rows: Tensor) -> tuple[Tensor, Tensor]:
        found = _search_batch(model, decoding, request, rows, n_best)
        padding = [[0, 0], [0, 0], [0, width - tf.shape(found.token_ids)[2]]]
        return tf.pad(found.token_ids, padding), found.scores

    num_texts = request.source.nrows(tf.int32)
    return map_in_length_batches(
        search_batch,
        tf.cast(request.source.row_lengths(), tf.int32),
        request.positions,
        (tf.zeros([num_texts, n_best, width], tf.int32), tf.zeros([num_texts, n_best])),
        positions_per_batch=_POSITIONS_PER_BATCH,
        max_rows=tf.maximum((num_texts + 1) // 2, MIN_TEXTS_PER_BATCH),
        parallel_iterations=PARALLEL_SEARCHES,
    )


def _search_batch(
    model: TranslationModel, decoding: DecodingConfig, request: Request, rows: Tensor, n_best: int
) -> Hypotheses:
    # rows: int32 (n,)
    source, max_lengths = tf.gather(request.source, rows).to_tensor(), tf.gather(request.max_lengths, rows)
    sampling = request.sampling
    beam_size = 1 if sampling else decoding.beam_size
    start_id: Any = Tokenizer.start_id
    options: dict[str, Tensor] = {}
    if request.prefix is not None:
        starts = tf.fill([tf.size(rows), 1], Tokenizer.start_id)
        start_id = left_padded(tf.concat([starts, tf.gather(request.prefix, rows)], axis=1))
        options["prefix"] = start_id[:, :-1]
    candidates = None
    if request.candidates is not None:
        prefix = None if request.prefix is None else start_id
        options["candidates"] = candidates = request.candidates.of(source, prefix)
    step, state = model.start_decoding(source, beam_size, **options)
    if candidates is not None:
        step = among(candidates, step)
        start_id = start_id if request.prefix is None else places_among(candidates, start_id)
    arguments: dict[str, Any] = dict(
        max_length=tf.reduce_max(max_lengths),
        start_id=start_id,
        end_id=Tokenizer.end_id,
        repetition_penalty=decoding.repetition_penalty,
        no_repeat_ngram_size=decoding.no_repeat_ngram_size,
        min_length=decoding.min_length,
        forbidden_ids=_FORBIDDEN_IDS[decoding.forbidden_tokens],
        placeholders=None if request.placeholders is None else tf.gather(request.placeholders, rows),
        drop_finished=True,
    )
    if sampling:
        drawn: dict[str, Any] = sampling._asdict()
        found = sample(step, state, max_lengths, rows=rows + drawn.pop("first_row"), **drawn, **arguments)
    elif beam_size == 1:
        found = greedy_search(step, state, max_lengths, **arguments)
    else:
        arguments |= dict(beam_size=beam_size, length_penalty=decoding.length_penalty, n_best=n_best)
        found = beam_search(step, state, max_lengths, **arguments)
    return found if candidates is None else with_token_ids(candidates, found)
