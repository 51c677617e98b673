"""The translator against direct calls of the model, NumPy, and itself on other batches."""

import dataclasses
import functools
import itertools
import os
import pickle
import random

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import ConfigError, Error
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.translation import Sampling, Translator, documents
from keras_transformer.translation.long_sentences import divide_long_sentences
from keras_transformer.translation.search import TranslationTensors

LONG = "Anna sees a tree. the dog buys two apples. " * 120


@pytest.fixture(scope="module")
def greedy(tiny_model_dir):
    return Translator.load(tiny_model_dir, DecodingConfig(beam_size=1, max_extra_tokens=10))


def mixed_texts():
    """More texts than one search takes, of all lengths, unordered."""
    rng = random.Random(3)
    sources = [source for source, _ in sentence_pairs()]
    texts = [" ".join(rng.choices(sources, k=rng.choice([1, 1, 1, 2, 4]))) for _ in range(150)]
    return texts + ["", "  ", "🙂", "\0", LONG]


def token_ids(translator, text):
    ids = translator.tokenizers.target.tokenize([text]).to_list()[0]
    return [*ids[: translator.model.config.max_length - 1], translator.tokenizers.target.end_id]


def texts_of(translator, rows):
    texts = translator.tokenizers.target.detokenize(tf.ragged.constant(rows, tf.int32))
    return [text.decode() for text in texts.numpy()]


@functools.cache
def graph_of(model):
    ids = tf.TensorSpec([1, None], tf.int32)
    call = lambda source, target: model({"source": source, "target": target})
    return tf.function(call, input_signature=[ids, ids], autograph=False)


def next_log_probs(translator, source_ids, prefix):
    """Log softmax, in NumPy, of the whole model's logits at every position of the prefix."""
    source, target = [source_ids], [[translator.tokenizers.target.start_id, *prefix]]
    logits = np.asarray(graph_of(translator.model)(source, target)[0], "float64")
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def log_prob(translator, source, target):
    ids = token_ids(translator, target)
    log_probs = next_log_probs(translator, token_ids(translator, source), ids[:-1])
    return sum(row[token_id] for row, token_id in zip(log_probs, ids))


def greedy_ids(translator, source, most, prefix=""):
    """The prefix and the most probable token at each step after it, by calls of the whole model."""
    source_ids, ids = token_ids(translator, source), token_ids(translator, prefix)[:-1]
    while len(ids) < most:
        ids.append(int(next_log_probs(translator, source_ids, ids)[-1].argmax()))
        if ids[-1] == translator.tokenizers.target.end_id:
            break
    return ids


def test_what_was_learned_is_translated(translator):
    sources, targets = zip(*sentence_pairs())
    assert translator(sources) == list(targets)


@pytest.mark.slow
def test_batches_may_be_searched_side_by_side(translator):
    signature = [tf.TensorSpec([None], tf.string)]
    search = tf.function(translator.graph.search, input_signature=signature, autograph=False)
    graph = search.get_concrete_function().graph.as_graph_def()
    operations = {
        node.op
        for part in (graph, *graph.library.function)
        for node in (getattr(part, "node", None) or part.node_def)
    }
    # A loop with a state outside of itself, a variable that it reads among others, waits for the
    # round before.
    assert "StatelessWhile" in operations and "While" not in operations


def test_a_text_is_translated_in_its_place_as_it_is_alone(translator):
    texts = mixed_texts()
    actual = translator(texts)
    assert len(actual) == len(texts)
    sample = [0, 1, 2, 77, *range(145, len(texts))]
    assert [actual[i] for i in sample] == [translator([texts[i]])[0] for i in sample]
    backwards = translator(texts[::-1])
    assert backwards == actual[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 2])
def test_forbidden_tokens_are_in_no_translation(wordpiece_model_dir, beam_size):
    config = dataclasses.replace(
        ModelDir(wordpiece_model_dir).read_config().model, logits_bias=True
    )
    tokenizer = Translator.load(wordpiece_model_dir).tokenizers.source
    model = build_transformer(config, dtype="float32")
    # Padding before the start token, then the unknown token, then one of all others.
    bias = np.zeros(tokenizer.vocab_size)
    bias[[tokenizer.pad_id, tokenizer.start_id, tokenizer.unk_id, 7]] = [400, 300, 200, 100]
    model.output_projection.bias.assign(bias)
    for forbidden, chosen in (
        ("none", tokenizer.pad_id),
        ("special", tokenizer.unk_id),
        ("unknown", 7),
    ):
        decoding = DecodingConfig(
            beam_size=beam_size, max_extra_tokens=3, forbidden_tokens=forbidden
        )
        actual = Translator(model, tokenizer, decoding).graph.search(tf.constant(["Anna"]))
        assert np.all(actual.token_ids.numpy() == chosen) and actual.token_ids.shape[-1] > 3


@pytest.mark.slow
def test_no_texts_blank_texts_and_bytes(translator, greedy):
    assert translator([]) == translator.n_best([], 4) == []
    assert translator.score([], []).shape == (0,)
    texts = ["Zoë greets the bridge.", "Anna\0 sees\t🙂"]
    assert translator([text.encode() for text in texts]) == translator(texts)
    assert translator([b"Zo\xff greets"]) == translator(["Zo\ufffd greets"])
    for searching in (translator, greedy):
        blank = searching.n_best(["", " ", " \t\n", "Anna sees a tree.", "   " * 50], 1)
        assert blank[:3] + blank[4:] == [[("", 0.0)]] * 4
        assert blank[3][0][0] == "Anna hat einen Baum, sieht!"
        # No-break, ideographic and figure spaces, separators of lines and paragraphs, next line,
        # invisible characters.
        assert (
            searching(
                ["\u00a0", "\u3000 \u2007", "\u2028\n\u2029", "\v\x85", "\u200f \ufeff\u200b"]
            )
            == [""] * 5
        )


def test_a_long_source_is_truncated_after_max_length_tokens(translator):
    kept = translator.model.config.max_length - 1
    truncated = translator.tokenizers.target.detokenize(
        translator.tokenizers.target.tokenize([LONG])[:, :kept]
    )
    truncated = truncated.numpy()[0].decode()
    assert len(truncated) < len(LONG) and translator.num_tokens([truncated, LONG])[0] == kept + 1
    assert translator.n_best([LONG], 1) == translator.n_best([truncated], 1)
    assert translator.score([LONG], ["Anna"]) == translator.score([truncated], ["Anna"])


@pytest.mark.slow
def test_n_best_are_ranked_by_log_probability_over_the_length_penalty(translator):
    sources = ["Anna sees a tree.", "my sister paints two apples. Zoë buys", "🙂 the the"]
    for n_best in translator.n_best(sources, 4):
        texts, scores = zip(*n_best)
        assert len(set(texts)) > 1 and sorted(scores, reverse=True) == list(scores)
    for source, target in sentence_pairs()[::12]:
        ((text, score),) = translator.n_best([source], 1)[0]
        penalty = ((5 + len(token_ids(translator, text))) / 6) ** 0.6
        assert text == target
        assert score == pytest.approx(log_prob(translator, source, text) / penalty, rel=1e-4)


def test_a_beam_of_one_is_the_most_probable_token_at_each_step(greedy):
    sources = ["the dog greets a tree.", "apples see my my sister", "🙂 Anna", "Anna Zoë"]
    limits = greedy.num_tokens(sources) + 10
    ids = [greedy_ids(greedy, source, limit) for source, limit in zip(sources, limits)]
    actual = greedy.n_best(sources, 1)
    assert [text for ((text, _),) in actual] == texts_of(greedy, ids)
    ((text, score),) = greedy.n_best(sources[:1], 1)[0]
    assert score == pytest.approx(log_prob(greedy, sources[0], text), rel=1e-4)


@pytest.mark.slow
def test_a_translation_has_at_most_max_extra_tokens_more_than_its_source(tiny_model_dir, greedy):
    sources = ["Anna sees a tree.", "Zoë", "the dog buys the bridge. Anna paints"]
    longest = [
        greedy_ids(greedy, source, n + 3) for source, n in zip(sources, greedy.num_tokens(sources))
    ]
    for extra in (0, 3):
        limited = Translator.load(
            tiny_model_dir, DecodingConfig(beam_size=1, max_extra_tokens=extra)
        )
        ids = [row[: n + extra] for row, n in zip(longest, greedy.num_tokens(sources))]
        expected = texts_of(greedy, ids)
        assert limited(sources) == expected
        assert expected != greedy(sources)


@pytest.mark.slow
def test_bfloat16_changes_scores_by_its_rounding_and_hardly_a_translation(
    tiny_model_dir, translator
):
    other = Translator.load(tiny_model_dir, precision="bfloat16")
    assert {weight.dtype for weight in other.model.weights} == {"bfloat16"}
    texts = [source for source, _ in sentence_pairs()]
    expected, actual = translator.n_best(texts, 1), other.n_best(texts, 1)
    same = [(a[0][1], b[0][1]) for a, b in zip(expected, actual) if a[0][0] == b[0][0]]
    assert len(same) >= 0.95 * len(texts)
    differences = np.abs(np.diff(same)) / np.maximum(np.abs(same).max(axis=1, keepdims=True), 1)
    # A bfloat16 is rounded by up to 2 ** -9; a score is at the end of a few dozen of them.
    assert 0 < differences.max() < 2**-5
    with pytest.raises(
        ConfigError, match="precision must be one of float32, bfloat16, int8-weights; received"
    ):
        Translator.load(tiny_model_dir, precision="half")


@pytest.mark.slow
def test_int8_rounds_each_output_channel_and_computes_in_float32(tiny_model_dir, translator):
    rounded, by_hand = (
        Translator.load(tiny_model_dir, precision="int8-weights"),
        Translator.load(tiny_model_dir),
    )
    num_matrices = 0
    for variable in by_hand.model.variables:
        weights = np.asarray(variable)
        if weights.ndim == 2:
            # Of a table of tokens, whose rows are columns of the logits' kernel, and of a kernel.
            channels = weights if weights.shape == (328, 64) else weights.T
            steps = np.abs(channels).max(axis=1) / 127
            nearest = np.array([np.round(row / step) * step for row, step in zip(channels, steps)])
            variable.assign(nearest if channels is weights else nearest.T)
            num_matrices += 1
    assert (rounded.precision, by_hand.precision) == ("int8-weights", "float32")
    integers = [weight.numpy() for weight in rounded.graph.weights if weight.dtype == tf.int8]
    assert len(integers) == num_matrices == 17 and {
        np.abs(matrix).max() for matrix in integers
    } == {127}
    texts = [source for source, _ in sentence_pairs()]
    actual, expected = rounded.n_best(texts, 1), by_hand.n_best(texts, 1)
    assert [row[0][0] for row in actual] == [row[0][0] for row in expected]
    scores, exact = (
        [row[0][1] for row in rows] for rows in (expected, translator.n_best(texts, 1))
    )
    np.testing.assert_allclose([row[0][1] for row in actual], scores, rtol=1e-4, atol=1e-5)
    assert np.abs(np.subtract(scores, exact)).max() > 1e-3
    np.testing.assert_allclose(rounded.score(texts, texts), by_hand.score(texts, texts), rtol=1e-4)
    np.testing.assert_allclose(rounded.encode(texts), by_hand.encode(texts), atol=1e-4)
    for aligned, aligned_by_hand in zip(rounded.align(texts, texts), by_hand.align(texts, texts)):
        np.testing.assert_allclose(aligned.attention, aligned_by_hand.attention, atol=1e-4)


@pytest.mark.slow
def test_what_does_not_fit_together_is_refused_in_one_line(
    translator, tiny_model_dir, wordpiece_model_dir
):
    for text in ("a", b"a"):
        for translate in (translator, translator.translate_document):
            with pytest.raises(
                ValueError, match=f"texts must be a list of strings; received texts={text!r}"
            ):
                translate(text)
    with pytest.raises(
        ConfigError, match="language must be a BCP 47 tag such as de, .*; received language='x'"
    ):
        translator.translate_document(["a"], "x")
    with pytest.raises(
        ValueError, match="must have the same length; received 1 sources and 2 targets"
    ):
        translator.score(["a"], ["a", "b"])
    model_dir = ModelDir(tiny_model_dir)
    model = model_dir.load_model(model_dir.read_config().model)
    with pytest.raises(
        ConfigError,
        match="tokenizer.vocab_size must be the model's target_vocab_size=328; received",
    ):
        Translator(model, Translator.load(wordpiece_model_dir).tokenizers, DecodingConfig())


WRONG_ARGUMENTS = [
    *(((["a"], n), {}, f"n must be from 1 to the beam size 4; received n={n}") for n in (0, 5)),
    (([["a"]],), {}, "texts[0] must be a string; received texts[0]=['a']"),
    ((np.array([["a"]]),), {}, "texts must be a list of strings; received texts="),
    ((["a", None],), {}, "texts[1] must be a string; received texts[1]=None"),
    ((None,), {}, "texts must be a list of strings; received texts=None"),
    ((1.5,), {}, "texts must be a list of strings; received texts=1.5"),
    (({"a"},), {}, "texts must be a list of strings; received texts={'a'}"),
    ((["\ud800"],), {}, "texts[0] must be without lone surrogates; received texts[0]='\\ud800'"),
    ((["a"], "2"), {}, "n must be of type int; received n='2'"),
    ((["a"],), {"prefixes": "x"}, "prefixes must be a list of strings; received prefixes='x'"),
    (
        (["a"],),
        {"prefixes": ["b", "c"]},
        "texts and prefixes must have the same length; received 1 texts and 2 prefix",
    ),
    ((["a"],), {"sampling": 3}, "sampling must be a Sampling; received sampling=3"),
    ((["a"],), {"sampling": Sampling("x")}, "seed must be of type int; received seed='x'"),
    ((["a"],), {"sampling": Sampling(1, temperature=0.0)}, "temperature must be positive"),
    ((["a"],), {"sampling": Sampling(1, top_p=2.0)}, "top_p must be above 0"),
    ((["a"], 2), {"sampling": Sampling(1)}, "n must be 1 with sampling; received n=2"),
]


@pytest.mark.slow
def test_a_wrong_argument_is_one_line_and_leaves_the_translator_as_it_was(tiny_model_dir):
    # Nothing is traced yet.
    translator = Translator.load(tiny_model_dir)
    for arguments, options, message in WRONG_ARGUMENTS:
        with pytest.raises(ConfigError) as error:
            translator.translate(*arguments, **options)
        assert str(error.value).startswith(message) and "\n" not in str(error.value)
    assert translator(["Anna sees a tree."]) == ["Anna hat einen Baum, sieht!"]
    # An integer of NumPy is not a wrong argument.
    texts = ["Anna sees a tree."]
    assert translator.n_best(texts, np.int64(2)) == translator.n_best(texts, 2)
    sampled = [
        translator.translate(texts, sampling=Sampling(1, top_k=top_k)) for top_k in (np.int64(2), 2)
    ]
    assert sampled[0] == sampled[1]
    assert (
        translator.align(texts, texts, np.int64(0))[0].positions
        == translator.align(texts, texts)[0].positions
    )


@pytest.mark.slow
def test_a_translator_is_pickled_as_its_directory(tiny_model_dir, monkeypatch, tmp_path):
    monkeypatch.chdir(tiny_model_dir)
    pickled = pickle.dumps(Translator.load(".", DecodingConfig(beam_size=1), language="en"))
    monkeypatch.chdir(tmp_path)
    other = pickle.loads(pickled)
    assert (other.decoding.beam_size, other.language) == (1, "en")
    assert other(["Anna sees a tree."]) == ["Anna hat einen Baum, sieht!"]
    by_hand = Translator(other.model, other.tokenizers, other.decoding)
    with pytest.raises(
        ConfigError, match="only a Translator that was loaded from a model directory can be pickled"
    ):
        pickle.dumps(by_hand)


def test_a_forked_process_is_told_that_it_cannot_translate(translator):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            translator(["Anna"])
        except Error as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        assert file.read().startswith(
            "a Translator cannot be used in a process that was forked after it was made"
        )
    os.waitpid(child, 0)


def test_translations_and_scores_tell_how_long_each_text_was_before_it_was_truncated(
    translator, greedy
):
    texts = [LONG, "Anna", "", "the dog greets a tree."]
    expected = [len(row) + 1 for row in translator.tokenizers.source.tokenize(texts).to_list()]
    assert translator.num_tokens(texts).tolist() == expected
    for searching in (translator, greedy):
        translations = searching.translate(texts, searching.decoding.beam_size)
        lengths = [translation.source_length for translation in translations]
        # What is far beyond the limit is not counted.
        assert (
            lengths[1:] == expected[1:]
            and translator.model.config.max_length < lengths[0] < expected[0]
        )
        n_best = searching.n_best(texts, searching.decoding.beam_size)
        assert [translation.hypotheses for translation in translations] == n_best
        assert [
            translation.hypotheses[0][0] for translation in searching.translate(texts)
        ] == searching(texts)
    scores = translator.score_tokens(texts, texts[::-1])
    assert scores.source_lengths.tolist() == scores.target_lengths.tolist()[::-1] == lengths
    np.testing.assert_array_equal(scores.log_probs, translator.score(texts, texts[::-1]))


def test_what_cannot_be_read_of_a_text_is_not_tokenized(translator):
    endless = ["x" * 10**6, "Anna sees a tree. " * 50_000, "\ud7ff" * 300_000]
    # What is left of them has the same tokens up to the end of what the model reads.
    kept = [text[:2000] for text in endless]
    actual = translator.translate(endless)
    cut = translator.translate(kept)
    assert [result.hypotheses for result in actual[:2]] == [result.hypotheses for result in cut[:2]]
    most = translator.model.config.max_length
    limit = most * translator.tokenizers.source.bytes_per_token
    assert all(most < result.source_length <= limit + 2 for result in actual)
    assert translator.token_ids(endless[1:2]).tolist() == translator.token_ids(kept[1:2]).tolist()
    scores = translator.score_tokens(endless, endless)
    assert scores.source_lengths.min() > most < scores.target_lengths.min()


DOCUMENT = (
    "Anna sees a tree. the dog buys two apples.  Zoë greets the bridge.\n\nAnna paints a tree.\n"
)


@pytest.mark.slow
def test_a_document_is_its_sentences_translated_with_their_white_space(translator):
    sentences = [
        "Anna sees a tree. the dog buys two apples.",
        "Zoë greets the bridge.",
        "Anna paints a tree.",
    ]
    first, second, third = translator(sentences)
    documents = [DOCUMENT, "", " \n ", sentences[2], "\t" + sentences[1] + "\u2028" + sentences[2]]
    actual = translator.translate_document(documents)
    assert [result.text for result in actual] == [
        f"{first}  {second}\n\n{third}\n", "", " \n ", third, f"\t{second}\u2028{third}"
    ]  # fmt: skip
    assert not any(result.was_cut for result in actual)
    # In any batch, as in no batch.
    assert [translator.translate_document([text])[0] for text in documents] == actual
    assert translator.translate_document([]) == []


@pytest.mark.slow
def test_a_sentence_that_is_too_long_is_divided_and_not_cut(translator):
    sentence = ", ".join(source.removesuffix(".") for source, _ in sentence_pairs())
    assert translator.num_tokens([sentence])[0] > 5 * translator.model.config.max_length
    (actual,) = translator.translate_document([sentence])
    assert (
        not actual.was_cut
        and translator.translate([sentence])[0].source_length > translator.model.config.max_length
    )
    count_tokens, max_tokens = (
        translator.graph.codec.count_source_tokens,
        translator.model.config.max_length - 1,
    )
    parts = divide_long_sentences(tf.ragged.constant([[sentence]]), count_tokens, max_tokens)
    parts = [part.decode() for part in parts.to_list()[0]]
    assert "".join(parts) == sentence and all(part.endswith(", ") for part in parts[:-1])
    assert actual.text == " ".join(translator([part.strip() for part in parts]))
    actual = translator.translate_document(
        ["Anna. Zoë.", "x" * 500, "我们去公园玩" * 60, "Anna. " + "y" * 500 + " z. Zoë"]
    )
    assert not any(result.was_cut for result in actual)


def test_sentences_without_spaces_between_them_get_one_where_the_translation_needs_it(
    translator, monkeypatch
):
    def search(texts, n_best=1):
        swapped = tf.strings.regex_replace(texts, "。", ".")
        swapped = tf.strings.regex_replace(swapped, r"\p{Han}", "a")
        swapped = tf.where(tf.strings.regex_full_match(texts, ".*!"), "！", swapped)
        return TranslationTensors(
            swapped[:, None], None, None, tf.ones_like(tf.strings.length(texts))
        )

    monkeypatch.setattr(translator.graph, "search", search)
    actual = translator.graph.translate_documents(
        tf.constant(["一。二。三。", "A! B! C! ", "一。 二。"]), "zh"
    )
    assert [text.decode() for text in actual.texts.numpy()] == [
        "a. a. a.",
        "！ ！ ！ ",
        "a. a.",
    ]
    actual = translator.graph.translate_documents(tf.constant(["一!二。二"]), "zh")
    assert actual.texts.numpy()[0].decode() == "a!a. a"


def copies(texts, n_best=1):
    """In the place of a search, translates each sentence to itself between bars."""
    copied = tf.where(texts == "", "", tf.strings.join(["|", texts, "|"]))
    return TranslationTensors(copied[:, None], None, None, tf.ones_like(tf.strings.length(texts)))


def test_a_document_of_too_many_sentences_is_cut_and_that_is_said(translator, monkeypatch):
    monkeypatch.setattr(translator.graph, "search", copies)
    monkeypatch.setattr(documents, "MAX_SENTENCES", 3)
    actual = translator.graph.translate_documents(
        tf.constant(["Anna.\nZoë.\n" * 3, "Anna.\nZoë.\nAnna."])
    )
    assert actual.was_cut.numpy().tolist() == [True, False]
    assert actual.texts.numpy()[0].count(b"\n") == 3
    whole = translator.graph.translate_documents(
        tf.constant(["Anna.\nZoë.\nAnna.\n", "Anna.\nZoë.\n"])
    )
    assert not whole.was_cut.numpy().any()
    # What a sentence has with its end token; the third begins after so many.
    monkeypatch.setattr(
        documents, "MAX_TOKENS", int(sum(translator.num_tokens(["Anna.\n", "Zoë.\n"])))
    )
    texts = ["Anna.\nZoë.\nAnna.", "Anna.\nZoë.\n", "", "Anna sees. " * 3]
    actual = translator.graph.translate_documents(tf.constant(texts))
    assert actual.was_cut.numpy().tolist() == [True, False, False, True]
    assert actual.texts.numpy()[0] == whole.texts.numpy()[1] == actual.texts.numpy()[1]
    monkeypatch.setattr(documents, "MAX_TOKENS", 1)
    actual = translator.graph.translate_documents(
        tf.constant(["Anna.\nZoë.\nAnna.", "Anna.\nZoë."])
    )
    assert actual.was_cut.numpy().all() and actual.texts.numpy()[0].count(b"\n") == 1


def test_bytes_that_are_not_utf_8_do_no_harm_in_a_document(translator):
    bad = [
        b"\xff\xfe. A",
        b"Anna sees a tree.\n\xed\xa0\x80",
        bytes(range(256)),
        b"\xef\xb7\x90d. A\xef\xb7",
    ]
    read = [text.decode() for text in tf.strings.unicode_transcode(bad, "UTF-8", "UTF-8").numpy()]
    assert translator.translate_document(bad) == translator.translate_document(read)
    first = translator.translate_document(["Anna sees a tree.\n", *bad])[0]
    assert first.text == translator(["Anna sees a tree."])[0] + "\n"


@pytest.mark.slow
def test_the_language_of_a_translator_divides_its_documents(
    tiny_model_dir, translator, monkeypatch
):
    text = "Anna sees approx. Zoë. Anna buys a tree."
    english = Translator.load(tiny_model_dir, language="en")
    monkeypatch.setattr(english.graph, "search", copies)
    monkeypatch.setattr(translator.graph, "search", copies)

    def divided(translator, language=None):
        return (
            translator.graph.translate_documents(tf.constant([text]), language)
            .texts.numpy()[0]
            .decode()
        )

    assert (
        divided(english)
        == divided(translator, "en")
        == "|Anna sees approx. Zoë.| |Anna buys a tree.|"
    )
    assert (
        divided(english, "de")
        == divided(translator)
        == "|Anna sees approx.| |Zoë.| |Anna buys a tree.|"
    )
    with pytest.raises(
        ConfigError,
        match="language must be a BCP 47 tag such as de, .*; received language='German'",
    ):
        Translator.load(tiny_model_dir, language="German")


@pytest.mark.slow
def test_what_is_drawn_depends_on_the_seed_and_the_number_of_the_text_only(translator):
    sources = [source for source, _ in sentence_pairs()] + ["", LONG]
    sampling = Sampling(seed=3, temperature=2.0)
    actual = translator.translate(sources, sampling=sampling)
    assert actual == translator.translate(sources, sampling=sampling)
    alone = [
        translator.translate([sources[i]], sampling=sampling._replace(first_row=i))[0]
        for i in (0, 7, 47)
    ]
    assert [result.hypotheses[0][0] for result in alone] == [
        actual[i].hypotheses[0][0] for i in (0, 7, 47)
    ]
    other = translator.translate(sources, sampling=sampling._replace(seed=4))
    assert sum(a.hypotheses[0][0] != b.hypotheses[0][0] for a, b in zip(actual, other)) > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling", [Sampling(1, top_k=1), Sampling(1, top_p=1e-6), Sampling(1, temperature=1e-3)]
)
def test_of_one_token_or_of_hardly_any_probability_the_best_are_drawn(translator, sampling):
    sources = [source for source, _ in sentence_pairs()]
    actual = [
        result.hypotheses[0][0] for result in translator.translate(sources, sampling=sampling)
    ]
    assert actual == Translator(
        translator.model, translator.tokenizers, DecodingConfig(beam_size=1)
    )(sources)


@pytest.fixture
def ids_of(wordpiece_model_dir):
    """Searches with rules, by a model that has learned nothing and repeats itself; returns the ids
    that are found."""

    def search(**options):
        translator = Translator.load(
            wordpiece_model_dir, DecodingConfig(max_extra_tokens=12, **options)
        )
        translations = translator.graph.search(
            tf.constant(["Anna sees a tree.", "the dog buys two apples."])
        )
        return [[int(i) for i in row if i] for row in translations.token_ids.numpy()[:, 0]]

    return search


def repeats(ids):
    """Whether a pair of neighbors occurs twice."""
    pairs = list(itertools.pairwise(ids))
    return len(set(pairs)) < len(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_configuration_s_rules_hold_for_translations(ids_of, beam_size):
    assert any(map(repeats, ids_of(beam_size=beam_size)))
    bound = ids_of(beam_size=beam_size, no_repeat_ngram_size=2, min_length=9)
    assert not any(map(repeats, bound)) and all(len(ids) >= 9 for ids in bound)
    without_repetition = ids_of(
        beam_size=beam_size, repetition_penalty=100.0, no_repeat_ngram_size=1
    )
    assert all(len(set(ids)) == len(ids) for ids in without_repetition)
