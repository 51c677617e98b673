"""Training of a drafter on a model's own greedy translations of a text."""

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Annotated

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer import MaskedLabelSmoothedCrossentropy, PositionalEmbedding
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.drafter_file import write_drafter
from keras_transformer.model_dir.files import locked
from keras_transformer.models import Drafter, Transformer
from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.tensors import Tensor
from keras_transformer.tokenizers import Tokenizer
from keras_transformer.translation import Translator

from .text.corpus import in_chunks

# Guesses that follow from guesses, as in a search.
DEPTH = 3
PEAK_LEARNING_RATE = 0.002
SENTENCES_PER_BATCH = 64
_SENTENCES_PER_CALL = 1024

_log = logging.getLogger(__name__)


def train_drafter(
    model_dir: str | os.PathLike[str] | ModelDir, translator: Translator, sources: Iterable[str], steps: int
) -> None:
    """Trains a drafter for the model of a model directory, whose weights stay as they are, and writes it there.

    Args:
        translator: of the model directory, with a beam size of 1.
        sources: sentences to translate.
        steps: updates.

    Raises:
        ConfigError: All sentences are blank.
        LockedError: Another process does this in the directory.
    """
    model_dir = ModelDir(model_dir)
    model = translator.model
    assert isinstance(model, Transformer)
    with locked(model_dir.path / ".draft.lock", "another process trains the drafter here"):
        pairs = _translate(translator, sources)
        drafter = Drafter(model.config.d_ff // 2)
        trained = drafting_model(model, drafter)
        schedule = keras.optimizers.schedules.CosineDecay(PEAK_LEARNING_RATE, steps)
        loss = MaskedLabelSmoothedCrossentropy(label_smoothing=0.0)
        # Not compiled by XLA, which would do so again for each shape.
        trained.compile(keras.optimizers.Adam(schedule), loss=[loss] * DEPTH, jit_compile=False)
        with ProgressBar("training the drafter", "steps", steps) as bar:

            def show(_: int, logs: dict[str, float]) -> None:
                bar.details = f"loss {logs['loss'] / DEPTH:.3f}"
                bar.advance()

            callback = keras.callbacks.LambdaCallback(on_train_batch_end=show)
            batches = _batches(pairs)
            history = trained.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[callback])
        write_drafter(model_dir.drafter_path, drafter, model_dir.weights_sha256())
    _log.info(f"{model_dir.drafter_path}: loss {history.history['loss'][-1] / DEPTH:.3f}")


def drafting_model(model: Transformer, drafter: Drafter) -> keras.Model:
    """Returns a functional model from a model's inputs to the logits of drafts, of which only the drafter is trained.

    Its outputs, (batch, target length, target_vocab_size), are for the same tokens as those of the model: guessed from
    the decoder's outputs at the positions before, from guesses for these, and so on, DEPTH times.
    """
    model.trainable = False
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    hidden = model.hidden_states({"source": source, "target": target})
    embedded = _TokenEmbedding(model.target_embedding)(target)
    logits = []
    for _ in range(DEPTH):
        # Before the first position there is no output, as in the first step of a search.
        before = ops.pad(hidden[:, :-1], ((0, 0), (1, 0), (0, 0)))
        hidden = drafter(before, embedded)
        logits.append(model.output_projection(hidden))
    return keras.Model({"source": source, "target": target}, logits)


class _TokenEmbedding(keras.Operation):
    """An embedding without positions, in a functional model."""

    def __init__(self, embedding: PositionalEmbedding) -> None:
        super().__init__()
        self.embedding = embedding

    def call(self, token_ids: Tensor) -> Tensor:
        return self.embedding.embed_tokens(token_ids)

    def compute_output_spec(self, token_ids: keras.KerasTensor) -> keras.KerasTensor:
        return keras.KerasTensor((*token_ids.shape, self.embedding.d_model), dtype="float32")


TokenIds = Annotated[np.ndarray, "int32 (length,)"]


def _translate(translator: Translator, sources: Iterable[str]) -> list[tuple[TokenIds, TokenIds]]:
    """Returns the tokens of the sources that are not blank and of their greedy translations, with end tokens."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def translate(texts: Tensor) -> tuple[Tensor, Tensor]:
        graph = translator.graph
        return graph.codec.encode_sources(texts).token_ids.to_tensor(), graph.search(texts).token_ids[:, 0]

    pairs: list[tuple[TokenIds, TokenIds]] = []
    with ProgressBar("translating", "sentences") as bar:
        for chunk in in_chunks(((text,) for text in sources if text.strip()), _SENTENCES_PER_CALL):
            texts = [text for (text,) in chunk]
            rows = zip(*(side.numpy() for side in translate(tf.constant(texts))), strict=True)
            pairs.extend((np.trim_zeros(source, "b"), np.trim_zeros(target, "b")) for source, target in rows)
            bar.advance(len(chunk))
    if not pairs:
        raise ConfigError("the text is empty")
    return pairs


def _batches(pairs: Sequence[tuple[TokenIds, TokenIds]]) -> tf.data.Dataset:
    """Yields batches of sentences of similar length for ever, in the order of a fixed seed."""
    order = np.argsort([len(target) for _, target in pairs], kind="stable")
    groups = np.array_split(order, -(-len(order) // SENTENCES_PER_BATCH))
    generator = np.random.default_rng(1)

    def rows() -> Iterable[tuple[dict[str, Tensor], tuple[Tensor, ...]]]:
        while True:
            for group in generator.permutation(len(groups)):
                source, labels = (
                    tf.ragged.constant([pairs[row][side] for row in groups[group]], tf.int32).to_tensor()
                    for side in (0, 1)
                )
                target = tf.concat([tf.fill([len(labels), 1], Tokenizer.start_id), labels[:, :-1]], axis=1)
                yield {"source": source, "target": target}, (labels,) * DEPTH

    ids = tf.TensorSpec([None, None], tf.int32)
    signature = ({"source": ids, "target": ids}, (ids,) * DEPTH)
    return tf.data.Dataset.from_generator(rows, output_signature=signature).prefetch(2)
