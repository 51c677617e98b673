"""Arabic to Hindi: right to left, combining vowels, emoji of several code points and characters of
four bytes, from training to the page in a browser."""

import dataclasses
import itertools
import json
import threading
import urllib.request

import keras
import pytest
from browser import IS_INSTALLED, browser
from session_mode import SavedModelSession

from keras_transformer.export.servable import export_servable, graph_of
from keras_transformer.export.signatures import signatures_of
from keras_transformer.model_dir import ModelDir
from keras_transformer.serving.server import RestApi, ServedFunction, make_server
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs
from keras_transformer.translation import Translator

pytestmark = pytest.mark.slow

NOUNS = {
    "الكَلْب": "कुत्ता",
    "القِطّة": "बिल्ली",
    "الطائر": "पक्षी",
    "👩🏽‍🚀": "👩🏽‍🚀 स्त्री",
    "𠮷": "𠮷𩸽",
    "الوَلَد": "लड़का",
}
VERBS = {"يركض": "दौड़ता है", "ينام": "सोता है", "يأكل": "खाता है", "يغنّي": "गाता है"}
PLACES = {"في البيت": "घर में", "في الحديقة": "बगीचे में", "في المدرسة": "स्कूल में"}
PAIRS = {
    f"{noun} {verb} {place}.": f"{NOUNS[noun]} {PLACES[place]} {VERBS[verb]}।"
    for noun, verb, place in itertools.product(NOUNS, VERBS, PLACES)
}
FIRST, SECOND, *_, LAST = PAIRS


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripts") / "model"
    settings = [
        "model.num_layers=1",
        "model.d_model=64",
        "model.d_ff=128",
        "model.num_heads=2",
        "model.dropout=0",
        "training.steps=500",
        "training.validate_every=500",
        "training.tokens_per_batch=1500",
        "training.num_buckets=1",
        "training.precision=float32",
        "training.warmup_steps=60",
        "training.peak_learning_rate=0.006",
        "training.label_smoothing=0",
        "training.subword_samples=3",
        "tokenizer.vocab_size=480",
        "decoding.placeholders=true",
        "decoding.beam_size=2",
    ]
    keras.utils.set_random_seed(1)
    pairs = SentencePairs([*PAIRS] * 10, [*PAIRS.values()] * 10, "invented")
    valid = SentencePairs([FIRST, LAST], [PAIRS[FIRST], PAIRS[LAST]], "valid")
    train(load_recipe("demo", settings), pairs, valid, path, make_strategy())
    return path


@pytest.fixture(scope="module")
def translator(model_dir):
    return Translator.load(model_dir)


def test_every_sentence_is_translated(translator):
    assert translator([*PAIRS]) == [*PAIRS.values()]


def test_a_document_is_translated_sentence_by_sentence(translator):
    (document,) = translator.translate_document([f"{FIRST} {LAST}\n{SECOND}"])
    assert document.text == f"{PAIRS[FIRST]} {PAIRS[LAST]}\n{PAIRS[SECOND]}"


def test_kept_text_comes_back_as_it_is(model_dir):
    decoding = ModelDir(model_dir).read_config().decoding
    kept = ["👩🏽‍🚀", "الوَلَد", "𠮷"]
    translator = Translator.load(model_dir, dataclasses.replace(decoding, keep=kept))
    texts = [text for text in PAIRS if text.split()[0] in kept]
    assert len(texts) == 36
    for text, translation in zip(texts, translator(texts), strict=True):
        assert translation.count(text.split()[0]) == 1


def test_a_saved_model_answers_the_same_in_a_session(translator, tmp_path):
    names = ["serving_default", "translate_document"]
    path = export_servable(translator, tmp_path, signatures=names, verified=False)
    model = SavedModelSession(path)
    texts = [text.encode() for text in PAIRS]
    answer = model("serving_default", {"text": texts})
    assert [text.decode() for text in answer["text"]] == [*PAIRS.values()]
    document = f"{FIRST} {LAST}\n{SECOND}".encode()
    answer = model("translate_document", {"text": [document]})
    expected = f"{PAIRS[FIRST]} {PAIRS[LAST]}\n{PAIRS[SECOND]}"
    assert answer["text"][0].decode() == expected
    model.close()


@pytest.fixture(scope="module")
def port(translator):
    signatures = {
        key: ServedFunction(signature.inputs, graph_of(signature, translator.graph))
        for key, signature in signatures_of(translator).items()
    }
    with make_server(RestApi("scripts", signatures), 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(10)


def test_the_rest_api_answers_the_same(port):
    body = json.dumps({"instances": [*PAIRS]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models/scripts:predict", body)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        predictions = json.load(answer)["predictions"]
    assert [prediction["text"] for prediction in predictions] == [*PAIRS.values()]


@pytest.mark.skipif(not IS_INSTALLED, reason="needs chromium and chromedriver")
def test_the_page_writes_each_script_in_its_direction(port, tmp_path):
    with browser() as page:
        page.look(900, 700)
        page.open(f"http://127.0.0.1:{port}/")
        text = json.dumps(f"{FIRST}\n{SECOND}\n{[*PAIRS][40]}\n{[*PAIRS][50]}")
        page.run(
            f"const box = document.getElementById('text'); box.value = {text};"
            "box.dispatchEvent(new Event('input'))"
        )
        page.request(
            "/execute/async",
            {
                "script": """
const done = arguments[0];
const look = () => document.querySelectorAll("#translations ol").length === 4
    && !document.getElementById("status").textContent ? done() : setTimeout(look, 50);
look();""",
                "args": [],
            },
        )
        shown = page.run(
            "return [...document.querySelectorAll('li:first-child .text p')].map(e => "
            "[e.textContent.trim(), getComputedStyle(e).direction])"
        )
        sources = page.run(
            "return [...document.querySelectorAll('.source')].map(e => "
            "[e.textContent.trim(), getComputedStyle(e).direction])"
        )
        page.screenshot(tmp_path / "page.png")
        assert page.messages() == []
    texts = [FIRST, SECOND, [*PAIRS][40], [*PAIRS][50]]
    assert shown == [[PAIRS[text], "ltr"] for text in texts]
    # The first letter decides, and that of the last text is Chinese.
    assert sources == [[text, "ltr" if text.startswith("𠮷") else "rtl"] for text in texts]
