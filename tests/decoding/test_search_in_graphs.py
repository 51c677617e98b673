"""Compiled searches equal plain ones; in a graph sequences that are done leave the batch."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from searches_in_python import (
    END,
    NUM_ROWS,
    SOURCES,
    START,
    RecurrentModel,
    assert_same,
    follow,
    initial_state,
    next_log_probs,
    plain_beam_search,
    plain_greedy_search,
    random_tables,
    search,
    step,
)

from keras_transformer.decoding import Growth, beam_search, greedy_search
from keras_transformer.errors import ConfigError
from keras_transformer.gather import gather_in_rows


def compiled(function, batch):
    """The forms in which the backend compiles a function of tables and maximum lengths."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        signature = [
            tf.TensorSpec((None, NUM_ROWS, 7), tf.float32),
            tf.TensorSpec((None,), tf.int32),
        ]
        forms = [tf.function(function, input_signature=signature)]
        if batch > 0:  # XLA compiles for the batch at hand, and TensorFlow no scatter into nothing.
            forms.append(tf.function(function, input_signature=signature, jit_compile=True))
        return forms
    if keras.backend.backend() == "jax":
        import jax

        return [jax.jit(function)]
    return [function]


@pytest.mark.parametrize("batch", [3, pytest.param(0, marks=pytest.mark.slow)])
def test_a_compiled_search_equals_a_plain_one(batch):
    def beam(tables, max_lengths):
        options = dict(max_length=9, n_best=2, with_margins=True)
        return search(tables, max_lengths, beam_size=3, **options)

    def greedy(tables, max_lengths):
        return follow(tables, max_lengths, max_length=9, with_margins=True)

    tables = ops.convert_to_tensor(random_tables(53, batch, 7))
    max_lengths = ops.convert_to_tensor(np.array([9, 4, 0][:batch], "int32"))
    for function in (beam, greedy):
        expected = function(tables, max_lengths)
        assert len(expected.scores) == batch
        for compiled_function in compiled(function, batch):
            hypotheses = compiled_function(tables, max_lengths)
            assert_same(hypotheses, expected)
            np.testing.assert_allclose(hypotheses.margins, expected.margins, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first_steps", [0, 1, 3, 9])
def test_a_state_may_grow_after_the_first_steps(first_steps):
    """The state holds every hypothesis's tokens, and the logits depend on all of them."""
    tables = ops.convert_to_tensor(np.random.default_rng(71).normal(size=(10, 7, 7)), "float32")

    def step(token_ids, parents, position, tokens):
        room = tokens.shape[2]
        tokens = gather_in_rows(tokens, parents)
        tokens = ops.where(np.arange(room) == position, token_ids[..., None], tokens)
        logits = ops.zeros((*token_ids.shape, 7))
        for i in range(room):
            logits += ops.where(i <= position, ops.take(tables[i], tokens[..., i], axis=0), 0.0)
        return logits, tokens

    def tokens(room, beam_size):
        return ops.zeros((3, beam_size, room), "int32")

    def results(room, **options):
        limits = dict(max_length=9, start_ids=START, end_ids=END, **options)
        max_lengths = [9, 4, 0]
        return [
            beam_search(step, tokens(room, 3), max_lengths, beam_size=3, **limits),
            greedy_search(step, tokens(room, 1), max_lengths, **limits),
        ]

    room = ((0, 0), (0, 0), (0, 10 - first_steps))
    growth = Growth(first_steps, lambda state: ops.pad(state, room))
    grown, expected = results(first_steps, growth=growth), results(10)
    for actual, hypotheses in zip(grown, expected, strict=True):
        assert_same(actual, hypotheses)


def test_a_search_that_drops_sequences_has_no_growth():
    growth = Growth(1, lambda state: state)
    message = "drop_finished must be False with growth; received drop_finished=True"
    with pytest.raises(ConfigError, match=message):
        greedy_search(
            step,
            initial_state(random_tables(73, 2, 5), 1),
            [4, 4],
            max_length=4,
            start_ids=START,
            end_ids=END,
            drop_finished=True,
            growth=growth,
        )


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    def both_searches(tables, max_lengths, max_length, **options):
        tables = tf.ensure_shape(tables, (None, NUM_ROWS, 7))
        options["max_length"] = max_length
        return search(tables, max_lengths, beam_size=3, n_best=2, **options), follow(
            tables, max_lengths, **options
        )

    SIGNATURE = [
        tf.TensorSpec((None, NUM_ROWS, None), tf.float32),
        tf.TensorSpec((None,), tf.int32),
        tf.TensorSpec((), tf.int32),
    ]
    graph_search, graph_search_that_drops = (
        tf.function(functools.partial(both_searches, **options), input_signature=SIGNATURE)
        for options in ({"with_margins": True}, {"with_margins": True, "drop_finished": True})
    )

    @pytest.mark.parametrize("graph_search", [graph_search, graph_search_that_drops])
    @pytest.mark.parametrize(
        "max_lengths",
        [
            [9, 4, 0, 2],
            *(
                pytest.param(limits, marks=pytest.mark.slow)
                for limits in ([3], [], list(range(40)))
            ),
        ],
    )
    def test_in_a_graph_batch_and_capacity_may_be_unknown(max_lengths, graph_search):
        tables = random_tables(59, len(max_lengths), 7)
        max_lengths = np.array(max_lengths, "int32")
        max_length = int(max_lengths.max(initial=0)) + 2
        beam, greedy = graph_search(tables, max_lengths, max_length)
        assert tuple(beam.token_ids.shape) == (len(max_lengths), 2, max_length)
        assert tuple(greedy.token_ids.shape) == (len(max_lengths), 1, max_length)
        for results, expected in zip(
            (beam, greedy), both_searches(tables, max_lengths, max_length, with_margins=True)
        ):
            assert_same(results, expected)
            np.testing.assert_allclose(results.margins, expected.margins, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("beam_size", [1, 2, 27])
    def test_sequences_of_somebody_elses_model_leave_the_batch(beam_size):
        results = []
        for drop_finished in (False, True):
            model = RecurrentModel()
            step, state = model.start_decoding(SOURCES, beam_size)
            options = dict(max_length=6, start_ids=START, end_ids=END, drop_finished=drop_finished)
            if beam_size == 1:
                results.append(greedy_search(step, state, [6, 2, 6, 1, 3], **options))
            else:
                results.append(
                    beam_search(step, state, [6, 2, 6, 1, 3], beam_size=beam_size, **options)
                )
            num_rows = [len(token_ids) for _, token_ids, _ in model.calls]
            assert (
                num_rows == sorted(num_rows, reverse=True) and (num_rows[-1] < 5) == drop_finished
            )
        assert_same(*results)

    @pytest.mark.slow
    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_sentences_that_are_done_leave_the_batch(beam_size):
        # Each costs as many steps as it needs alone, and what waits until an eighth is done.
        tables = random_tables(67, 32, 5)

        def num_rows(rows, drop_finished):
            counts = []

            def counting_step(token_ids, parents, position, state):
                counts.append(len(token_ids))
                return step(token_ids, parents, position, state)

            options = dict(max_length=40, start_ids=START, end_ids=END, drop_finished=drop_finished)
            state = initial_state(tables[rows], beam_size)
            max_lengths = [40] * len(tables[rows])
            if beam_size == 1:
                greedy_search(counting_step, state, max_lengths, **options)
            else:
                beam_search(counting_step, state, max_lengths, beam_size=beam_size, **options)
            return counts

        def steps_alone(table):
            def log_probs(prefix):
                return next_log_probs(table, prefix)

            if beam_size == 1:
                return len(plain_greedy_search(log_probs, 40)[1])
            return plain_beam_search(log_probs, 40, beam_size, 0.6, 1)[1]

        alone = [steps_alone(table) for table in tables]
        needed = [sum(steps > position for steps in alone) for position in range(max(alone))]
        assert num_rows(slice(None), drop_finished=False) == [32] * max(alone)
        dropping = num_rows(slice(None), drop_finished=True)
        assert all(n <= have and 7 * have < 8 * n for n, have in zip(needed, dropping, strict=True))
        assert dropping[-1] < 8

    def test_the_graph_holds_no_operation_of_xla():
        graph = graph_search.get_concrete_function().graph.as_graph_def()
        types = {node.op for node in graph.node}
        types |= {node.op for function in graph.library.function for node in function.node_def}
        assert {"StatelessWhile", "TopKV2", "TensorScatterUpdate"} <= types
        assert not [t for t in types if t.startswith("Xla")]

    def test_a_known_batch_survives_a_step_that_loses_it():
        tables = random_tables(61, 2, 5)

        def blurring_step(token_ids, parents, position, state):
            logits, state = step(token_ids, parents, position, state)
            return tf.compat.v1.placeholder_with_default(logits, (None, None, 5)), state

        @tf.function
        def blurred():
            return beam_search(
                blurring_step, initial_state(tables, 3), [6, 6],
                max_length=6, start_ids=START, end_ids=END, beam_size=3,
            )  # fmt: skip

        assert_same(blurred(), search(tables, [6, 6], beam_size=3))
