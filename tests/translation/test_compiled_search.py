"""Compiled searches find the tokens that plain ones find."""

import random
import re

import numpy as np
import pytest
import tensorflow as tf
from test_shortlist import random_shortlist

from keras_transformer import Translator
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import ConfigError
from keras_transformer.export.servable import Servable
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.model_dir.shortlist_file import Shortlist
from keras_transformer.translation import plain_search
from keras_transformer.translation.plain_search import search_hypotheses
from keras_transformer.translation.searched_model import Candidates
from keras_transformer.translation.shapes import SearchShapes

RESTRICTED = dict(
    no_repeat_ngram_size=2, repetition_penalty=1.3, min_length=5, forbidden_tokens="unknown"
)
WORDS = "Anna the dog my sister Zoë sees buys paints greets a tree two apples bridge . ,".split()


def random_texts(seed, number, most_words):
    words = random.Random(seed)
    return [" ".join(words.choices(WORDS, k=words.randint(0, most_words))) for _ in range(number)]


def traced_search(translator, shapes, n_best=1):
    """The search as a function of texts, compiled for shapes unless these are None."""

    graph = translator.graph if shapes is None else translator.graph.compiled(shapes)

    def search(texts):
        translations = graph.search(texts, n_best=n_best)
        return translations.token_ids, translations.scores

    signature = [tf.TensorSpec([None], tf.string)]
    function = tf.function(search, input_signature=signature, autograph=False)
    return function.get_concrete_function()


def with_shortlist(translator):
    shortlist = random_shortlist(translator.tokenizers.target.vocab_size)
    return Translator(
        translator.model, translator.tokenizers, translator.decoding, shortlist=shortlist
    )


def functions_of(graph):
    return graph.as_graph_def().library.function


def assert_same(translator, shapes, requests, n_best=1):
    plain = traced_search(translator, None, n_best)
    compiled = traced_search(translator, shapes, n_best)
    for texts in requests:
        expected_ids, expected_scores = plain(tf.constant(texts, tf.string))
        token_ids, scores = compiled(tf.constant(texts, tf.string))
        np.testing.assert_array_equal(token_ids, expected_ids)
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-4, atol=1e-5)


# With few extra tokens, many translations end at their maximum length.
@pytest.mark.parametrize(("beam_size", "max_extra_tokens"), [(1, 0), (4, 50)])
def test_tokens_are_those_of_the_plain_search(beam_size, max_extra_tokens, tiny_model_dir):
    decoding = DecodingConfig(beam_size=beam_size, max_extra_tokens=max_extra_tokens)
    translator = Translator.load(tiny_model_dir, decoding)
    # Some texts are too long for the program.
    texts = ["", *random_texts(1, 60, most_words=8)]
    assert_same(translator, SearchShapes((16,), (1,)), [[text] for text in texts])


def with_failing_plain_search(monkeypatch):
    """Makes plain searches that are traced from now on fail when they run."""

    def failing(*arguments, **options):
        hypotheses = search_hypotheses(*arguments, **options)
        with tf.control_dependencies([tf.debugging.Assert(False, ["plain"])]):
            return hypotheses._replace(token_ids=tf.identity(hypotheses.token_ids))

    monkeypatch.setattr(plain_search, "search_hypotheses", failing)


def test_batches_that_fit_a_shape_do_not_use_the_plain_search(tiny_model_dir, monkeypatch):
    with_failing_plain_search(monkeypatch)
    translator = Translator.load(tiny_model_dir, DecodingConfig(beam_size=1))
    compiled = traced_search(translator, SearchShapes((16,), (1, 6)))
    short, long = "Anna sees a tree.", "Anna sees a tree. " * 6
    for texts in ([short], [""], [short] * 3, [short] * 6):
        compiled(tf.constant(texts))
    # Too long, less than half of six texts, and more than six.
    for texts in ([long], [short] * 2, [short] * 7):
        with pytest.raises(tf.errors.InvalidArgumentError, match="plain"):
            compiled(tf.constant(texts))


def test_a_long_list_of_candidates_uses_a_longer_shape(tiny_model_dir, monkeypatch):
    translator = with_shortlist(Translator.load(tiny_model_dir, DecodingConfig(beam_size=1)))
    text = ["Anna sees a tree with two apples near the bridge."]
    expected_ids, _ = traced_search(translator, None)(tf.constant(text))
    candidates = translator.graph.candidates
    source = translator.graph.codec.encode_sources(tf.constant(text)).token_ids
    num_added = int(tf.size(candidates.of(source.to_tensor(), None))) - candidates.always.shape[0]
    assert int(source.row_lengths()[0]) < num_added - 1
    candidates.mean_num_added = 1
    with_failing_plain_search(monkeypatch)
    search = traced_search(translator, SearchShapes((num_added - 1, num_added), (1,)))
    token_ids, _ = search(tf.constant(text))
    np.testing.assert_array_equal(token_ids, expected_ids)
    with pytest.raises(tf.errors.InvalidArgumentError, match="plain"):
        traced_search(translator, SearchShapes((num_added - 1,), (1,)))(tf.constant(text))


def test_a_request_has_the_candidates_of_the_plain_search(tiny_model_dir):
    # All texts of a batch share one list, so both searches have to form the same batches.
    translator = with_shortlist(Translator.load(tiny_model_dir, DecodingConfig(beam_size=1)))
    requests = [random_texts(number, number, most_words=8) for number in (2, 3, 4)]
    assert_same(translator, SearchShapes((16,), (1,)), requests)


def test_the_mean_number_of_tokens_that_a_source_token_adds():
    # The rows add 5 and 6; 7; and nothing.
    shortlist = Shortlist(
        by_source=np.array([[5, 6, 4], [7, 1, 0], [0, 0, 0]], "int32"),
        always=np.array([0, 1, 2, 3, 4], "int32"),
    )
    assert Candidates(shortlist, vocab_size=9, also=range(0)).mean_num_added == 1


def test_a_translator_compiles_from_now_on(tiny_model_dir):
    translator, plain = (Translator.load(tiny_model_dir) for _ in range(2))
    texts = [["Anna sees a tree."], ["the dog buys two apples.", ""], ["two apples " * 20]]
    # Traced before, as a plain search.
    translator(texts[0])
    translator.compile_search([16], [1, 2])
    for some in texts:
        assert translator(some) == plain(some)
    (graph,) = (traced.graph for traced in translator._traced.values())
    assert any("_XlaMustCompile" in function.attr for function in functions_of(graph))


def test_an_export_without_shapes_compiles_nothing(tiny_model_dir):
    translator = Translator.load(tiny_model_dir)
    translator.compile_search([16])
    servable = Servable(translator, {"translate": SIGNATURES["translate"]})
    functions = functions_of(servable.functions["translate"].graph)
    assert functions and not any("_XlaMustCompile" in function.attr for function in functions)


@pytest.mark.parametrize(
    ("lengths", "batch_sizes", "message"),
    [
        ([], [1], "lengths must be at least one size; received lengths=[]"),
        ([16, 0], [1], "lengths[1] must be at least 1; received lengths[1]=0"),
        ([16], [17], "batch_sizes[0] must be at most 16; received batch_sizes[0]=17"),
        ([16], [1, 2.5], "batch_sizes[1] must be of type int; received batch_sizes[1]=2.5"),
    ],
)
def test_sizes_of_programs_are_checked(lengths, batch_sizes, message, tiny_model_dir):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Translator.load(tiny_model_dir).compile_search(lengths, batch_sizes)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "int8-weights"])
@pytest.mark.parametrize("has_shortlist", [False, True])
def test_other_precisions_are_compiled(precision, has_shortlist, tiny_model_dir):
    decoding = DecodingConfig(beam_size=3)
    translator = Translator.load(tiny_model_dir, decoding, precision=precision)
    if has_shortlist:
        translator = with_shortlist(translator)
    search = traced_search(translator, SearchShapes((16,), (1,)))
    plain = traced_search(translator, None)
    num_equal = 0
    for text in random_texts(3, 20, most_words=8):
        (token_ids, _), (expected_ids, _) = search(tf.constant([text])), plain(tf.constant([text]))
        num_equal += np.array_equal(token_ids, expected_ids)
    # With bfloat16, rounding decides between tokens of nearly equal probability.
    assert num_equal >= {"int8-weights": 20, "bfloat16": 15}[precision]


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_tokens_of_a_thousand_texts(beam_size, tiny_model_dir):
    translator = Translator.load(tiny_model_dir, DecodingConfig(beam_size=beam_size))
    texts = random_texts(2, 1000, most_words=24)
    assert_same(translator, SearchShapes().up_to(64), [[text] for text in texts])


@pytest.mark.slow
def test_tokens_of_batches(tiny_model_dir):
    translator = Translator.load(tiny_model_dir, DecodingConfig(beam_size=2))
    # Batches that fill a shape, more and less than half of one, several, and none.
    batches = [random_texts(number, number, most_words=14) for number in (4, 3, 2, 1, 9, 0, 31)]
    assert_same(translator, SearchShapes((16, 48), (1, 4, 6)), batches)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decoding", "n_best", "has_shortlist"),
    [
        (dict(beam_size=4), 4, False),
        (dict(beam_size=1), 1, True),
        (dict(beam_size=4), 2, True),
        (dict(beam_size=1, **RESTRICTED), 1, False),
        (dict(beam_size=3, **RESTRICTED), 3, True),
        (dict(beam_size=1, placeholders=True), 1, False),
        (dict(beam_size=3, placeholders=True), 2, True),
    ],
)
def test_tokens_of_other_searches(decoding, n_best, has_shortlist, tiny_model_dir):
    translator = Translator.load(tiny_model_dir, DecodingConfig(**decoding))
    if has_shortlist:
        translator = with_shortlist(translator)
    texts = random_texts(5, 40, most_words=8)
    texts += ["see https://a.org/b and <b>two</b> apples", "%s", "Anna sees {name} www.a.org"]
    requests = [[text] for text in texts] + [texts[i : i + 3] for i in range(0, 40, 3)]
    assert_same(translator, SearchShapes((16,), (1, 3)), requests, n_best)
