"""The page of attention as a person uses it. Needs Debian's packages chromium and
chromium-driver."""

import numpy as np
import pytest

from keras_transformer.translation.attention import Attention, TranslationAttention, attention_page

pytestmark = pytest.mark.slow

ENGLISH = [
    "▁A",
    "▁man",
    "▁in",
    "▁a",
    "▁blue",
    "▁shirt",
    "▁is",
    "▁stand",
    "ing",
    "▁on",
    "▁a",
    "▁ladder",
    ".",
]
HEBREW = ["▁איש", "▁בחולצה", "▁כחולה", "▁עומד", "▁על", "▁סולם", "▁123", "."]
SENTENCES = {
    "long": (ENGLISH * 8)[:99],
    "empty": [],
    "right to left": HEBREW,
    "emoji": ["<0xF0>", "<0x9F>", "<0x90>", "<0xB6>", "▁👩‍👩‍👧‍👦", "▁🇩🇪", "▁👍🏽", "▁"],
    "hostile": [
        "<script>document.title = 'run'</script>",
        "<b>",
        "&amp;",
        "</script>",
        "▁" + "wide" * 40,
    ],
}
NUM_LAYERS, NUM_HEADS = 3, 4


@pytest.fixture(params=[*SENTENCES])
def found(request):
    return attention_of(SENTENCES[request.param])


def attention_of(sentence):
    """Attention from an English sentence of 13 tokens to a translation."""
    source, target = [*ENGLISH, "</s>"], [*sentence, "</s>"]
    before = ["<s>", *target[:-1]]
    by_kind = {
        kind: Attention(weights(len(queries), len(keys)), queries, keys)
        for kind, queries, keys in (
            ("cross", target, source),
            ("encoder", source, source),
            ("decoder", target, before),
        )
    }
    text, translation = (
        "".join(pieces).replace("▁", " ").strip() for pieces in (ENGLISH, sentence)
    )
    return TranslationAttention(text, translation, by_kind)


def weights(*lengths):
    logits = 3 * np.random.default_rng(sum(lengths)).normal(size=(NUM_LAYERS, NUM_HEADS, *lengths))
    exponentials = np.exp(logits)
    return (exponentials / exponentials.sum(axis=-1, keepdims=True)).astype("float32")


def open_page(page, found, tmp_path, kind="cross", layer=NUM_LAYERS - 1, heads=(0, 1)):
    (tmp_path / "a.html").write_text(attention_page(found, kind, layer, heads), encoding="utf-8")
    page.open((tmp_path / "a.html").as_uri())


def looks(page):
    """The percentages at the keys as the page shows them; those below 0.5 it leaves out."""
    return page.run(
        "return [...document.querySelectorAll('#keys small')].map(one => Number(one.textContent))"
    )


def same(shown, row):
    # What the page rounds to percents was rounded before.
    percents = np.where(row >= 0.005, np.floor(100 * row + 0.5), 0)
    return len(shown) == len(row) and np.allclose(shown, percents, atol=1)


def labels(page, side):
    return page.run(
        f"return [...document.querySelectorAll('#{side} .token')].map(one => "
        f"one.firstChild.textContent)"
    )


def focused(page):
    return page.run(
        "return [...document.querySelectorAll('#queries button')].indexOf(document.activeElement)"
    )


def select(page, name, value):
    page.run(
        f"const select = document.getElementById('{name}'); select.value = '{value}'; "
        "select.dispatchEvent(new Event('change', {bubbles: true}))"
    )


def test_the_mouse_shows_where_a_token_looks(page, found, tmp_path):
    page.look()
    open_page(page, found, tmp_path)
    cross = found.by_kind["cross"].weights
    last = min(len(cross[0, 0]), 20) - 1
    page.point(f"#queries button:nth-child({last + 1})")
    assert same(looks(page), cross[2].mean(axis=0)[last])
    page.point("h1")
    assert same(looks(page), cross[2].mean(axis=0)[0])
    # A click chooses: what is shown stays when the mouse leaves, in another head too.
    page.point(f"#queries button:nth-child({last + 1})", click=True)
    page.point("#maps tr:nth-child(2) td:nth-child(3) button", click=True)
    assert same(looks(page), cross[0, 1, last])
    assert page.run("return ['layer', 'head'].map(id => document.getElementById(id).value)") == [
        "0",
        "1",
    ]
    assert page.messages() == []


def test_every_kind_layer_and_head_is_the_models(page, found, tmp_path):
    page.look()
    open_page(page, found, tmp_path, "decoder", 1, [2])
    assert same(looks(page), found.by_kind["decoder"].weights[1, 2, 0])
    for kind, attention in found.by_kind.items():
        select(page, "kind", kind)
        assert len(labels(page, "queries")) == len(attention.queries)
        assert len(labels(page, "keys")) == len(attention.keys)
        for layer in range(NUM_LAYERS):
            select(page, "layer", layer)
            select(page, "head", "")
            assert same(looks(page), attention.weights[layer].mean(axis=0)[0])
            for head in range(NUM_HEADS):
                select(page, "head", head)
                assert same(looks(page), attention.weights[layer, head, 0])


def test_the_keyboard_is_enough(page, found, tmp_path):
    page.look()
    open_page(page, found, tmp_path)
    rows = found.by_kind["cross"].weights[2].mean(axis=0)
    last = len(rows) - 1
    for _ in range(10):
        page.press("Tab")
        if focused(page) >= 0:
            break
    assert focused(page) == 0
    is_hebrew = found.translation.startswith("איש")
    forward, back = ("Left", "Right") if is_hebrew else ("Right", "Left")
    page.press(forward)
    assert focused(page) == min(1, last) and same(looks(page), rows[min(1, last)])
    page.press(back, back)
    assert focused(page) == 0
    page.press("End", forward)
    assert focused(page) == last and same(looks(page), rows[last])
    page.press("Up", "Home")
    assert focused(page) == 0
    page.press("Down")
    below = focused(page)
    tops = page.run(
        "return [...document.querySelectorAll('#queries button')].map(one => one.offsetTop)"
    )
    assert tops[below] == (sorted({*tops})[1] if len({*tops}) > 1 else tops[0])
    page.press("Up")
    assert tops[focused(page)] == tops[0]
    assert page.messages() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_layout_holds(page, found, tmp_path, width, dark):
    page.look(width, 900, dark)
    open_page(page, found, tmp_path)
    assert page.run("return document.documentElement.scrollWidth") == width
    # No token is wider than its box.
    wide = (
        "[...document.querySelectorAll('.token')].filter(one => one.scrollWidth > "
        "one.parentElement.clientWidth)"
    )
    assert page.run(f"return {wide}.length") == 0
    color, background = page.run(
        "const style = getComputedStyle(document.body); return [style.color, style.backgroundColor]"
    )
    light = [sum(map(int, css[4:-1].split(","))) for css in (color, background)]
    assert (light[0] > 600 and light[1] < 150) if dark else (light[0] < 150 and light[1] > 600)
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert page.messages() == []


def test_each_side_has_its_direction_and_a_token_is_text(page, found, tmp_path):
    page.look()
    open_page(page, found, tmp_path)
    assert page.run("return document.title") == f"Attention: {found.text}"
    assert labels(page, "keys") == found.by_kind["cross"].keys
    assert (
        page.run("return document.getElementById('translation').textContent") == found.translation
    )
    assert page.run("return document.querySelectorAll('.token *:not(bdi, small)').length") == 0
    is_hebrew = found.translation.startswith("איש")
    directions = page.run(
        "return ['queries', 'keys'].map(id => "
        "getComputedStyle(document.getElementById(id)).direction)"
    )
    assert directions == ["rtl" if is_hebrew else "ltr", "ltr"]
    if len(found.by_kind["cross"].queries) > 1:
        first, second = page.run(
            "return [...document.querySelectorAll('#queries button')].slice(0, 2)"
            ".map(one => one.getBoundingClientRect().left)"
        )
        assert first > second if is_hebrew else first <= second
