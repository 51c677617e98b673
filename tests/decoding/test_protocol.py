"""What the searches ask of a model: the calls of its step function, and nothing but the
protocol."""

import inspect

import pytest
from keras import ops
from searches_in_python import (
    END,
    SOURCES,
    START,
    RecurrentModel,
    as_lists,
    assert_same_sentences,
    exhaustive_search,
    initial_state,
    next_log_probs,
    plain_beam_search,
    plain_greedy_search,
    random_tables,
    run_step_by_step,
    step,
)

from keras_transformer import Transformer
from keras_transformer.decoding import Decodable, beam_search, greedy_search


def counting(calls):
    def counting_step(token_ids, parents, position, state):
        calls.append(int(position))
        return step(token_ids, parents, position, state)

    return counting_step


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_beam_search_stops_as_soon_as_nothing_can_change(alpha):
    tables = random_tables(23, 12, 5)
    expected = [
        plain_beam_search(lambda prefix: next_log_probs(table, prefix), 40, 3, alpha, 2)[1]
        for table in tables
    ]
    assert 1 < max(expected) < 40 and len(set(expected)) > 2
    for chosen in ([0], [1], range(12)):
        calls = []
        with run_step_by_step():
            beam_search(
                counting(calls), initial_state(tables[list(chosen)], 3), [40] * len(chosen),
                max_length=40, start_ids=START, end_ids=END, beam_size=3, length_penalty=alpha,
                n_best=2,
            )  # fmt: skip
        assert len(calls) == max(expected[i] for i in chosen)


def test_greedy_search_stops_with_its_last_sentence():
    tables = random_tables(29, 6, 5)
    calls = []
    with run_step_by_step():
        results = greedy_search(
            counting(calls), initial_state(tables, 1), [40] * 6,
            max_length=40, start_ids=START, end_ids=END,
        )  # fmt: skip
    assert 1 < len(calls) == ops.convert_to_numpy(results.lengths).max() < 40


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize(("beam_size", "n_best"), [(27, 3), (2, 2)])
def test_beam_search_needs_nothing_of_a_model_but_the_protocol(beam_size, n_best, alpha):
    model, max_length = RecurrentModel(), 4
    with run_step_by_step():
        step, state = model.start_decoding(SOURCES, beam_size)
        results = beam_search(
            *(step, state, [max_length] * 5),
            **dict(max_length=max_length, start_ids=START, end_ids=END),
            **dict(beam_size=beam_size, length_penalty=alpha, n_best=n_best),
        )
    model.assert_calls_keep_the_protocol(5, beam_size)
    assert 1 < len(model.calls) <= max_length and model.beam_sizes == [beam_size]
    differences = 0
    for source, sentences in zip(SOURCES, as_lists(results)):

        def log_probs(prefix):
            return model.next_log_probs(source, prefix)

        best = exhaustive_search(log_probs, model.vocab_size, max_length, alpha, n_best)
        if beam_size == 27:
            # At most 3 ** 3 hypotheses do not end before the last step: none is lost.
            assert_same_sentences(sentences, best)
        else:
            expected, _ = plain_beam_search(log_probs, max_length, beam_size, alpha, n_best)
            assert_same_sentences(sentences, expected)
            differences += [tokens for _, tokens in expected] != [tokens for _, tokens in best]
    # A narrow beam misses something, so that the comparison above says something of its own.
    assert (differences > 0) == (beam_size == 2)


def test_greedy_search_needs_nothing_of_a_model_but_the_protocol():
    model, max_length = RecurrentModel(), 6
    with run_step_by_step():
        step, state = model.start_decoding(SOURCES)
        results = greedy_search(
            step, state, [max_length] * 5, max_length=max_length, start_ids=START, end_ids=END
        )
    model.assert_calls_keep_the_protocol(5, beam_size=1)
    for source, sentences in zip(SOURCES, as_lists(results)):
        expected = plain_greedy_search(
            lambda prefix: model.next_log_probs(source, prefix), max_length
        )
        assert_same_sentences(sentences, [expected])


def test_the_transformer_starts_decoding_as_the_protocol_says():
    ours, protocol = (
        inspect.signature(cls.start_decoding).parameters for cls in (Transformer, Decodable)
    )
    ours, protocol = (
        [(p.name, p.kind, p.default) for p in parameters.values()]
        for parameters in (ours, protocol)
    )
    assert ours[: len(protocol)] == protocol
    # Nothing else must be given.
    assert all(default is not inspect.Parameter.empty for _, _, default in ours[len(protocol) :])
