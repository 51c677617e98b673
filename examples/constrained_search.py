"""Translations that must not contain a word, and that must end with a given token, by a search of one's own.

    python -m examples.constrained_search MODEL_DIR --text "The old man bought a big house." --never großes --last '?'

A search asks a step function for the logits of each next token, and a step function can be wrapped in another one that
changes them: -inf forbids a token. What a wrapper has to know about each hypothesis it keeps in a state of its own.
"""

import argparse
import math

import numpy as np
import tensorflow as tf

from keras_transformer import Translator
from keras_transformer.decoding import beam_search

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


def end_after(step, state, token_id, end_id):
    """Forbids the end token unless the newest token is the given one."""

    def step_with(token_ids, parents, position, state):
        logits, state = step(token_ids, parents, position, state)
        is_end = tf.range(logits.shape[-1]) == end_id
        return forbid(logits, (token_ids != token_id)[..., None] & is_end), state

    return step_with, state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model_dir")
    parser.add_argument("--text", default="The old man bought a big house.")
    parser.add_argument("--never", default="großes", help="a word")
    parser.add_argument("--last", default="?", help="a token")
    arguments = parser.parse_args()

    translator = Translator.load(arguments.model_dir)
    model, tokenizer = translator.model, translator.tokenizers.target
    (phrase,) = tokenizer.tokenize([arguments.never]).to_list()
    *_, last = tokenizer.tokenize(["a" + arguments.last]).to_list()[0]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def search(source):
        batch_size = tf.shape(source)[0]
        step, state = model.start_decoding(source, BEAM_SIZE, MAX_LENGTH)
        step, state = never(step, state, phrase, batch_size)
        step, state = end_after(step, state, last, tokenizer.end_id)
        found = beam_search(
            step,
            state,
            tf.fill([batch_size], MAX_LENGTH),
            max_length=MAX_LENGTH,
            start_id=tokenizer.start_id,
            end_id=tokenizer.end_id,
            beam_size=BEAM_SIZE,
            # Tokens that are forbidden everywhere need no step of one's own.
            forbidden_ids=[tokenizer.pad_id, tokenizer.start_id, tokenizer.unk_id],
        )
        return found.token_ids[:, 0], found.scores[:, 0]

    token_ids, scores = search(translator.token_ids([arguments.text]))
    (constrained,) = translator.detokenize(token_ids).numpy()
    ((free, score),) = translator.n_best([arguments.text], 1)[0]
    print(f"{arguments.text}\n    free:        {free} ({score:.2f})")
    print(f"    constrained: {constrained.decode()} ({np.asarray(scores)[0]:.2f})")


if __name__ == "__main__":
    main()
