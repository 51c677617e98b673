"""Translations that must not contain one word, or must contain another, by a search of one's own.

    python -m examples.constrained_search MODEL_DIR --text "She lost it." --never Hut --surely ihn

What "it" is in German depends on what was lost; who knows that it was a key, and no hat, can say
so.

A search asks a step function for the logits of each next token, and a step function can be wrapped
in another one that changes them: -inf forbids a token. What a wrapper has to know about each
hypothesis it keeps in a state of its own.
"""

import argparse
import math

import numpy as np
import tensorflow as tf

from keras_transformer import Translator
from keras_transformer.decoding import Constraints, beam_search

BEAM_SIZE = 4
MAX_LENGTH = 60  # tokens


def forbid(logits, is_forbidden):
    return tf.where(is_forbidden, -math.inf, tf.cast(logits, tf.float32))


def never(step, state, phrase, batch_size):
    """Forbids the last token of a phrase where a hypothesis ends with the tokens before it."""
    *beginning, last = phrase

    def step_without(token_ids, parents, position, state):
        newest, inner = state
        # A search reorders its hypotheses: each continues the one that `parents` names.
        newest = tf.gather(newest, parents, batch_dims=1)
        newest = tf.concat([newest, token_ids[..., None]], axis=2)[:, :, 1:]
        logits, inner = step(token_ids, parents, position, inner)
        is_said = tf.reduce_all(newest == tf.constant(beginning, tf.int32), axis=2)
        is_last = tf.range(logits.shape[-1]) == last
        return forbid(logits, is_said[..., None] & is_last), (newest, inner)

    nothing = tf.fill([batch_size, BEAM_SIZE, len(beginning)], -1)
    return step_without, (nothing, state)


def surely(step, state, phrase, end_id, batch_size):
    """Forbids the end token until a hypothesis has said a phrase."""

    def step_with(token_ids, parents, position, state):
        newest, is_said, inner = state
        newest = tf.concat(
            [tf.gather(newest, parents, batch_dims=1), token_ids[..., None]], axis=2
        )[:, :, 1:]
        is_said = tf.gather(is_said, parents, batch_dims=1) | tf.reduce_all(
            newest == phrase, axis=2
        )
        logits, inner = step(token_ids, parents, position, inner)
        is_end = tf.range(logits.shape[-1]) == end_id
        return forbid(logits, ~is_said[..., None] & is_end), (newest, is_said, inner)

    nothing = tf.fill([batch_size, BEAM_SIZE, len(phrase)], -1)
    return step_with, (nothing, tf.fill([batch_size, BEAM_SIZE], False), state)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model_dir")
    parser.add_argument("--text", default="She lost it.")
    parser.add_argument("--never", help="a word")
    parser.add_argument("--surely", help="a word")
    arguments = parser.parse_args()

    translator = Translator.load(arguments.model_dir)
    model, tokenizer = translator.model, translator.tokenizers.target
    never_ids, surely_ids = tokenizer.tokenize(
        [arguments.never or "", arguments.surely or ""]
    ).to_list()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def search(source):
        batch_size = tf.shape(source)[0]
        step, state = model.start_decoding(source, BEAM_SIZE, MAX_LENGTH)
        if never_ids:
            step, state = never(step, state, never_ids, batch_size)
        if surely_ids:
            step, state = surely(step, state, surely_ids, tokenizer.end_id, batch_size)
        hypotheses = beam_search(
            step,
            state,
            tf.fill([batch_size], MAX_LENGTH),
            max_length=MAX_LENGTH,
            start_ids=tokenizer.start_id,
            end_ids=tokenizer.end_id,
            beam_size=BEAM_SIZE,
            # Tokens that are forbidden everywhere need no step of one's own.
            constraints=Constraints(
                forbidden_ids=[tokenizer.pad_id, tokenizer.start_id, tokenizer.unk_id]
            ),
        )
        return hypotheses.token_ids[:, 0], hypotheses.scores[:, 0]

    token_ids, scores = search(translator.token_ids([arguments.text]))
    (constrained,) = translator.detokenize(token_ids).numpy()
    ((free, score),) = translator.n_best([arguments.text], 1)[0]
    print(f"{arguments.text}\n    free:        {free} ({score:.2f})")
    print(f"    constrained: {constrained.decode()} ({np.asarray(scores)[0]:.2f})")


if __name__ == "__main__":
    main()
