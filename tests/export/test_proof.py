"""The proof of an export: it finds faults in a graph, and accepts what rounding explains."""

import re
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs
from keras import tree
from tensorflow.core.protobuf import saved_model_pb2
from test_ctranslate2 import random_translator
from test_shortlist import random_shortlist

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import beam_search
from keras_transformer.errors import VerificationError
from keras_transformer.export import proof
from keras_transformer.export.servable import Servable, edit_signatures, graph_of
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.models import Transformer
from keras_transformer.tokenizers import Tokenizer
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator, documents, plain_search, search
from keras_transformer.translation.searched_model import Candidates
from keras_transformer.translation.shapes import SearchShapes

# The package exports a function of this name.
beam_search_module = sys.modules[beam_search.__module__]

RESTRICTED = dict(
    beam_size=3,
    max_extra_tokens=4,
    forbidden_tokens="unknown",
    no_repeat_ngram_size=1,
    min_length=7,
)
TAGS = [">>de<<", ">>fr<<"]


@pytest.fixture(scope="module")
def translator():
    """A translator with random weights whose restrictions matter for most translations."""
    return random_translator_of()


@pytest.fixture(scope="module")
def with_spans():
    """A translator with a tag, terms and placeholders in addition."""
    return random_translator_of(
        tag=">>de<<", terms={"dog": "Hund"}, placeholders=True, keep=["Zwei"]
    )


def random_translator_of(**decoding):
    texts = [text for pair in sentence_pairs() for text in pair]
    tokenizer = train_tokenizer(texts, "bpe", 341, tags=TAGS, terms=True)
    sizes = dict(source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size)
    options = dict(num_layers=1, logits_bias=True, max_length=24, sharpness=2.0)
    model = random_translator(tokenizers=tokenizer, **options, **sizes).model
    # Tokens that may not be chosen, or not yet, are probable.
    bias = model.output_projection.bias
    bias.assign(bias + np.isin(np.arange(tokenizer.vocab_size), [Tokenizer.unk_id, 3]) * 8.0)
    return Translator(
        model,
        tokenizer,
        DecodingConfig(**RESTRICTED, **decoding),
        shortlist=random_shortlist(tokenizer.vocab_size),
    )


# Faults, which are planted while a graph is traced and run.


def with_steps(change):
    """Changes the steps of decoding."""

    def plant(patch, translator):
        start_decoding = Transformer.start_decoding

        def start(self, *arguments, **options):
            step, state = start_decoding(self, *arguments, **options)
            return lambda *arguments: change(step, *arguments), state

        patch.setattr(Transformer, "start_decoding", start)

    return plant


@with_steps
def wrong_position(step, token_ids, parents, position, state):
    return step(token_ids, parents, position + 1, state)


@with_steps
def swapped_beam(step, token_ids, parents, position, state):
    return step(token_ids, parents[:, ::-1], position, state)


@with_steps
def stale_cache_entry(step, token_ids, parents, position, state):
    """The newest entry is that of the hypothesis beside it."""
    logits, state = step(token_ids, parents, position, state)
    caches = tree.map_structure(
        lambda tensor: tf.concat([tensor[:, :, :-1], tensor[:, :, -2:-1]], axis=2), state.caches
    )
    return logits, state._replace(caches=caches)


@with_steps
def weaker_end_token(step, token_ids, parents, position, state):
    logits, state = step(token_ids, parents, position, state)
    return logits - 0.1 * tf.one_hot(3, tf.shape(logits)[-1]), state


def without_constraint(**changes):
    def plant(patch, translator):
        constraints_of = plain_search.constraints_of
        patch.setattr(
            plain_search,
            "constraints_of",
            lambda *arguments: constraints_of(*arguments)._replace(**changes),
        )

    return plant


def without_length_penalty(patch, translator):
    patch.setattr(
        plain_search,
        "beam_search",
        lambda *arguments, **options: beam_search(*arguments, **{**options, "length_penalty": 0.0}),
    )


def smaller_beam(patch, translator):
    """The beam loses its last hypothesis at each step."""
    top_k = beam_search_module.stable_top_k

    def smaller(values, k):
        highest, indices = top_k(values, k)
        is_beam = values.shape[-1] == 2 * RESTRICTED["beam_size"]
        is_last = tf.range(k) == (k - 1 if is_beam else -1)
        return tf.where(is_last, -np.inf, highest), indices

    patch.setattr(beam_search_module, "stable_top_k", smaller)


def wrong_end_token(patch, translator):
    patch.setattr(plain_search.Tokenizer, "end_id", 9)


def shifted_shortlist(patch, translator):
    of = Candidates.of
    patch.setattr(Candidates, "of", lambda self, source, prefix: of(self, source + 1, prefix))


def truncated_source(patch, translator):
    search_tokens = search.search_tokens
    patch.setattr(
        "keras_transformer.translation.graph.search_tokens",
        lambda searched, source, *arguments: search_tokens(searched, source[:, 1:], *arguments),
    )


def shorter_limit(patch, translator):
    search_tokens = search.search_tokens
    patch.setattr(
        "keras_transformer.translation.graph.search_tokens",
        lambda searched, source, limits, *arguments: search_tokens(
            searched, source, tf.maximum(limits - 1, 0), *arguments
        ),
    )


def wrong_tag(patch, translator):
    other = translator.tokenizers.source.tags[">>fr<<"]
    patch.setattr(translator.graph.codec, "tag_ids", (other,))


def unseen_padding(patch, translator):
    """The padding of a batch is visible."""
    encode = Transformer.encode

    def changed(self, source):
        encoded, mask = encode(self, source)
        return encoded, tf.ones_like(mask)

    patch.setattr(Transformer, "encode", changed)


def wrong_weight(patch, translator):
    kernel = translator.model.decoder.layers[0].feed_forward.hidden_dense.kernel
    values = kernel.numpy()
    values[3, 5] += 0.5
    kernel.assign(values)


def exchanged_heads(patch, translator):
    kernel = translator.model.decoder.layers[0].cross_attention.query_dense.kernel
    values = kernel.numpy()
    kernel.assign(np.roll(values, values.shape[1] // 2, axis=1))


def reversed_results(patch, translator):
    search_hypotheses = plain_search.search_hypotheses

    def changed(*arguments, **options):
        found = search_hypotheses(*arguments, **options)
        return found._replace(
            token_ids=found.token_ids[:, ::-1],
            lengths=found.lengths[:, ::-1],
            scores=found.scores[:, ::-1],
        )

    patch.setattr(plain_search, "search_hypotheses", changed)


def undivided_sentences(patch, translator):
    patch.setattr(documents, "divide_long_sentences", lambda sentences, *arguments: sentences)


def no_fault(patch, translator):
    pass


FAULTS = {
    "wrong position": wrong_position,
    "swapped beam": swapped_beam,
    "stale cache entry": stale_cache_entry,
    "weaker end token": weaker_end_token,
    "other end token": wrong_end_token,
    "no length penalty": without_length_penalty,
    "smaller beam": smaller_beam,
    "no minimum length": without_constraint(min_length=0),
    "no forbidden tokens": without_constraint(forbidden_ids=()),
    "repeated tokens": without_constraint(no_repeat_ngram_size=0),
    "shifted shortlist": shifted_shortlist,
    "truncated source": truncated_source,
    "shorter limit": shorter_limit,
    "visible padding": unseen_padding,
    "wrong weight": wrong_weight,
    "exchanged heads": exchanged_heads,
    "reversed results": reversed_results,
}


def answer_with(fault, translator, signature):
    """The answer of a graph with a fault that is traced and run as in a SavedModel."""
    weights = [weight.numpy() for weight in translator.graph.weights]
    with pytest.MonkeyPatch.context() as patch:
        fault(patch, translator)
        function = graph_of(signature, translator.graph, with_hidden=True)
        answer = function(**signature.request(proof.TEXTS))
    for weight, values in zip(translator.graph.weights, weights, strict=True):
        weight.assign(values)
    return {key: tensor.numpy() for key, tensor in answer.items()}


@pytest.fixture(scope="module")
def reference(translator):
    return translator.graph.with_margins()


def check(reference, signature, answer):
    inputs = signature.request(proof.TEXTS)
    return proof.check_answer(reference, signature, inputs, answer, proof.FLOAT32)


@pytest.mark.parametrize(
    "name", ["translate_n_best", pytest.param("translate_document", marks=pytest.mark.slow)]
)
def test_proof_of_a_healthy_graph_with_clear_decisions_passes(translator, reference, name):
    signature = SIGNATURES[name]
    margins = check(reference, signature, answer_with(no_fault, translator, signature))
    assert margins.size >= len(proof.TEXTS) and proof.decides(margins, proof.FLOAT32).all()


# The other faults take a trace each too, 2 to 4 seconds.
QUICK = ("wrong position", "swapped beam", "repeated tokens", "wrong weight")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in FAULTS],
)
def test_proof_of_a_graph_with_a_fault_fails(translator, reference, name):
    signature = SIGNATURES["translate_n_best"]
    answer = answer_with(FAULTS[name], translator, signature)
    with pytest.raises(VerificationError):
        check(reference, signature, answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, fault",
    [
        ("translate", without_constraint(exactly_once=None)),
        ("translate", wrong_tag),
        ("translate_document", undivided_sentences),
        ("translate_with_prefix", swapped_beam),
        ("translate_tokens", wrong_position),
        ("score", wrong_weight),
        ("align", exchanged_heads),
        ("encode", wrong_tag),
    ],
)
def test_proof_of_each_signature_with_a_fault_fails(with_spans, name, fault):
    reference, signature = with_spans.graph.with_margins(), SIGNATURES[name]
    check(reference, signature, answer_with(no_fault, with_spans, signature))
    with pytest.raises(VerificationError):
        check(reference, signature, answer_with(fault, with_spans, signature))


# Undecided texts.


@pytest.fixture(scope="module")
def healthy(translator):
    """A signature, and the answer of a healthy graph to its request."""
    signature = SIGNATURES["translate_n_best"]
    return signature, answer_with(no_fault, translator, signature)


def with_other_results(healthy, rows):
    """The answer that a search gives if it finds the second result of some texts only."""
    answer = {key: values.copy() for key, values in healthy[1].items()}
    for key in ("text", "score", "~token_id", "~score"):
        answer[key][rows, 0] = answer[key][rows, 1]
    return answer


@pytest.fixture
def undecided(monkeypatch):
    """Makes all texts undecided."""
    monkeypatch.setattr(proof, "decides", lambda margins, tolerance: margins > np.inf)


def test_other_tokens_of_a_decided_text_are_refused(reference, healthy):
    with pytest.raises(VerificationError, match="^text: 1 of 24 .*, the first in text 4\n"):
        check(reference, healthy[0], with_other_results(healthy, [3]))


@pytest.mark.usefixtures("undecided")
def test_other_tokens_of_an_undecided_text_with_their_scores_are_accepted(reference, healthy):
    answer = with_other_results(healthy, [3])
    check(reference, healthy[0], answer)


@pytest.mark.parametrize("key", ["score", "~score"])
@pytest.mark.usefixtures("undecided")
def test_other_tokens_of_an_undecided_text_with_another_score_are_refused(reference, healthy, key):
    answer = with_other_results(healthy, [3])
    answer[key][3, 0] += 0.01
    with pytest.raises(VerificationError, match="^score: 1 of 24 .*, the first in text 4\n"):
        check(reference, healthy[0], answer)


@pytest.mark.usefixtures("undecided")
def test_other_text_than_that_of_the_tokens_is_refused(reference, healthy):
    answer = with_other_results(healthy, [3])
    answer["text"][3, 0] = healthy[1]["text"][3, 0]
    with pytest.raises(VerificationError, match="^text: 1 of 24 .*, the first in text 4\n"):
        check(reference, healthy[0], answer)


@pytest.mark.usefixtures("undecided")
def test_results_that_are_not_in_order_are_refused(reference, healthy):
    answer = with_other_results(healthy, [3])
    for key in ("text", "score", "~token_id", "~score"):
        answer[key][3, 1] = healthy[1][key][3, 0]
    with pytest.raises(VerificationError, match="^score: 1 of 16 .*, the first in text 4\n"):
        check(reference, healthy[0], answer)


@pytest.mark.usefixtures("undecided")
def test_a_missing_result_is_refused(reference, healthy):
    answer = {key: values.copy() for key, values in healthy[1].items()}
    answer["~score"][3, 2] = -np.inf
    with pytest.raises(VerificationError, match="^score: 1 of 24 .*, the first in text 4\n"):
        check(reference, healthy[0], answer)


# Outputs without a search.


@pytest.mark.parametrize(
    "tolerance, error, is_refused",
    [
        (proof.FLOAT32, 5e-5, False),
        (proof.FLOAT32, 2**-9, True),
        (proof.TF32, 2**-9, False),
        (proof.BFLOAT16, 2**-7, False),
        (proof.BFLOAT16, 0.1, True),
    ],
)
def test_numbers_may_differ_by_the_rounding_of_the_precision(tolerance, error, is_refused):
    expected = {"score": np.ones(3, "float32")}
    answer = {"score": np.array([1, 1, 1 + error], "float32")}
    differs = proof._differs("score", answer, expected, tolerance)
    assert differs.tolist() == [False, False, is_refused]


@pytest.mark.parametrize(
    "precision, devices, tolerance",
    [
        ("float32", ["CPU", "CPU"], proof.FLOAT32),
        ("int8-weights", ["CPU", "CPU"], proof.FLOAT32),
        ("float32", ["CPU", "GPU"], proof.TF32),
        ("bfloat16", ["CPU", "GPU"], proof.BFLOAT16),
    ],
)
def test_tolerance_depends_on_the_precision_and_on_both_devices(precision, devices, tolerance):
    assert proof.tolerance_of(precision, devices) == tolerance


def test_a_position_may_be_any_whose_attention_is_the_greatest_up_to_rounding():
    attention = np.array([[[0.40000, 0.40001, 0.19999], [0.1, 0.2, 0.7]]], "float32")
    expected = {"position": np.array([[1, 2]], "int32"), "attention": attention}
    for positions, differs in (
        ([0, 2], [0, 0]),
        ([2, 2], [1, 0]),
        ([1, 1], [0, 1]),
        ([3, -1], [1, 1]),
    ):
        answer = {**expected, "position": np.array([positions], "int32")}
        elements = proof._differs("position", answer, expected, proof.FLOAT32)
        assert elements.astype(int).tolist() == [differs]


# Whole exports, in a process of their own.


def test_an_answer_is_not_awaited_for_ever(monkeypatch, tmp_path, translator):
    monkeypatch.setattr(proof, "_MAX_SECONDS", 0.01)
    with pytest.raises(
        VerificationError, match="the SavedModel has not answered after 0.01 seconds"
    ):
        proof.verify(tmp_path, translator)


def save(translator, path, names, fault, shapes=None):
    signatures = {name: SIGNATURES[name] for name in names}
    with pytest.MonkeyPatch.context() as patch:
        fault(patch, translator)
        servable = Servable(translator, signatures, shapes)
        tf.saved_model.save(servable, str(path), signatures=servable.functions)
    edit_signatures(path / "saved_model.pb", signatures)
    return signatures


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision, names, shapes",
    [
        ("float32", [*SIGNATURES], None),
        ("float32", ["translate", "translate_document"], SearchShapes((16,), (1, 3))),
        ("bfloat16", ["serving_default", "translate_n_best"], None),
        ("bfloat16", ["translate"], SearchShapes((16,), (1, 3))),
        ("int8-weights", ["translate", "score"], None),
    ],
)
def test_proof_of_a_healthy_export_passes(
    tiny_model_dir, tmp_path, caplog, precision, names, shapes
):
    translator = Translator.load(tiny_model_dir, precision=precision)
    signatures = save(translator, tmp_path, names, no_fault, shapes)
    with caplog.at_level("INFO"):
        proof.verify(tmp_path, translator, signatures)
    assert re.search(
        rf"verified with a tolerance of \S+ for {precision} \(translator: CPU, SavedModel: CPU\); "
        r"\d+ translations, \d+ undecided",
        caplog.text,
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", [wrong_position, swapped_beam, shifted_shortlist])
def test_proof_of_an_export_with_a_fault_fails(translator, tmp_path, fault):
    signatures = save(translator, tmp_path, ["translate"], fault)
    with pytest.raises(VerificationError) as refused:
        proof.verify(tmp_path, translator, signatures)
    message = str(refused.value)
    assert message.startswith("translate: ") and len(message.splitlines()) == 4


@pytest.mark.slow
def test_proof_of_a_bfloat16_export_with_other_weights_fails(tiny_model_dir, tmp_path):
    translator = Translator.load(tiny_model_dir, precision="bfloat16")
    signatures = save(translator, tmp_path, ["translate"], exchanged_heads)
    translator = Translator.load(tiny_model_dir, precision="bfloat16")
    with pytest.raises(VerificationError, match="differ by more than rounding"):
        proof.verify(tmp_path, translator, signatures)


@pytest.mark.slow
def test_proof_of_an_export_with_another_tokenizer_fails(translator, tmp_path):
    signatures = save(translator, tmp_path, ["translate"], no_fault)
    swap_tokenizer(tmp_path)
    with pytest.raises(
        VerificationError,
        match="translate: (text|source_length): .* differ by more than rounding",
    ):
        proof.verify(tmp_path, translator, signatures)


def swap_tokenizer(path):
    """Puts the model of another tokenizer, with as many pieces, into a SavedModel."""
    texts = [text.swapcase() for pair in sentence_pairs() for text in pair]
    other = train_tokenizer(texts, "bpe", 341, tags=TAGS, terms=True).file_content
    file = path / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    graph = saved_model.meta_graphs[0].graph_def
    nodes = [
        *graph.node,
        *(node for function in graph.library.function for node in function.node_def),
    ]
    tokenizers = [node for node in nodes if node.op == "SentencepieceOp"]
    assert tokenizers
    for node in tokenizers:
        node.attr["model"].s = other
    file.write_bytes(saved_model.SerializeToString())
