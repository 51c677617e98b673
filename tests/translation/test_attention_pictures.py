"""Pictures and pages of attention: what they show are the model's weights, and what they say is
text."""

import html.parser
import json

import numpy as np
import numpy_transformer
import pytest

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.config.model import AttentionView
from keras_transformer.errors import ConfigError
from keras_transformer.models import build_transformer
from keras_transformer.translation import Translator
from keras_transformer.translation.attention import (
    WEIGHT_UNIT,
    Attention,
    TranslationAttention,
    attention_figure,
    attention_page,
    plot_attention,
    readable,
    translate_with_attention,
)

TEXT = "Anna sees a tree."
HOSTILE = [
    "<script>",
    "</script><script>alert(1)</script>",
    "<!--",
    "&lt;",
    "\"'\\",
    "\u2028",
    "{{data}}",
    "</s>",
]


@pytest.fixture(scope="module")
def translator(tiny_model_dir):
    return random_translator(tiny_model_dir)


def random_translator(tiny_model_dir, **options):
    """A translator that has learned nothing, whose encoder and decoder differ in depth."""
    tokenizers = Translator.load(tiny_model_dir).tokenizers
    size = tokenizers.source.vocab_size
    depths = dict(num_encoder_layers=2, num_decoder_layers=3)
    config = TransformerConfig(
        size, size, d_model=32, d_ff=32, num_heads=4, max_length=64, **depths, **options
    )
    model = build_transformer(config, "float32")
    numpy_transformer.randomize(model)
    for variable in model.trainable_variables:
        if variable.name == "kernel":
            # Logits of hundreds would differ by what float32 rounds.
            variable.assign(0.5 * variable.value)
    return Translator(model, tokenizers, DecodingConfig(beam_size=1, max_extra_tokens=3))


@pytest.fixture(scope="module")
def found(translator):
    return translate_with_attention(translator, TEXT)


@pytest.fixture(scope="module")
def formulas(translator):
    """The weights by kind, as the formulas of the paper have them; and the ids of the
    translation."""
    kept = {}
    attend = numpy_transformer.multi_head_attention

    def keep(layer, *args, **kwargs):
        output, weights = attend(layer, *args, **kwargs)
        kept[layer.path] = weights[0]
        return output, weights

    token_ids = np.asarray(translator.graph.search(np.array([TEXT])).token_ids)[0, 0]
    labels = token_ids[token_ids != 0]
    target = np.array([[2, *labels[:-1]]])
    model = translator.model
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(numpy_transformer, "multi_head_attention", keep)
        numpy_transformer.transformer(model, translator.token_ids([TEXT]), target)
    layers = {
        "encoder": [layer.self_attention for layer in model.encoder.layers],
        "decoder": [layer.self_attention for layer in model.decoder.layers],
        "cross": [layer.cross_attention for layer in model.decoder.layers],
    }
    return {
        kind: np.array([kept[layer.path] for layer in group]) for kind, group in layers.items()
    }, labels


class Page(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts = [], []
        self.feed(text)
        self.close()
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data


def page_of(queries, keys, text="a", translation="b"):
    weights = np.full((1, 2, len(queries), len(keys)), 1 / len(keys), "float32")
    return attention_page(
        TranslationAttention(text, translation, {"cross": Attention(weights, queries, keys)}),
        "cross",
        0,
        [0, 1],
    )


@pytest.mark.slow
def test_the_weights_and_those_of_the_page_are_those_of_the_formulas(translator, found, formulas):
    expected, labels = formulas
    assert {*found.by_kind} == {*expected}
    for kind, attention in found.by_kind.items():
        assert attention.weights.shape == (
            *expected[kind].shape[:2],
            len(attention.queries),
            len(attention.keys),
        )
        np.testing.assert_allclose(attention.weights, expected[kind], atol=1e-5)
    pieces = translator.tokenizers.target.pieces
    source = pieces(translator.token_ids([TEXT])[0])
    assert found.by_kind["cross"][1:] == (pieces(labels), source)
    assert found.by_kind["encoder"][1:] == (source, source)
    assert found.by_kind["decoder"][1:] == (pieces(labels), ["<s>", *pieces(labels)[:-1]])
    data = Page(attention_page(found, "encoder", 0, [2])).data
    assert (data["text"], data["translation"], data["unit"]) == (
        TEXT,
        found.translation,
        WEIGHT_UNIT,
    )
    assert data["shown"] == {"kind": "encoder", "layer": 0, "head": 2}
    assert {*data["attention"]} == {*expected}
    for kind, weights in expected.items():
        shown = np.array(data["attention"][kind]["weights"])
        np.testing.assert_allclose(shown / WEIGHT_UNIT, weights, atol=0.5 / WEIGHT_UNIT + 1e-5)


@pytest.mark.slow
def test_the_panels_of_a_picture_are_the_weights(found):
    attention = found.by_kind["decoder"]
    figure = attention_figure(attention, [0, 2], [1, 3])
    assert [panel.get_title() for panel in figure.axes] == [
        f"layer {layer}, head {head}" for layer in (1, 3) for head in (2, 4)
    ]
    for panel, (layer, head) in zip(figure.axes, [(0, 1), (0, 3), (2, 1), (2, 3)], strict=True):
        np.testing.assert_array_equal(panel.images[0].get_array(), attention.weights[layer, head])
    assert [label.get_text() for label in figure.axes[-1].get_xticklabels()] == attention.keys
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == attention.queries


@pytest.mark.slow
def test_a_token_may_have_the_marks_of_formulas_and_a_large_picture_has_fewer_pixels(
    translator, tmp_path, monkeypatch
):
    pieces = ["$x^$", "$\\frac$", "</s>"]
    attention_figure(
        Attention(np.ones((1, 1, 3, 3), "float32"), pieces, pieces), [0], [0]
    ).canvas.draw()
    monkeypatch.setattr("keras_transformer.translation.attention._MOST_PIXELS", 1e5)
    plot_attention(translator, TEXT, tmp_path / "a.png", AttentionView("encoder", layer="all"))
    width, height = (
        int.from_bytes((tmp_path / "a.png").read_bytes()[at : at + 4]) for at in (16, 20)
    )
    assert 0.9e5 < width * height < 1.1e5


def test_every_text_of_a_page_is_data():
    text = page_of(HOSTILE, HOSTILE, text=HOSTILE[1], translation=HOSTILE[2])
    page = Page(text)
    assert (
        page.data["attention"]["cross"]["queries"]
        == page.data["attention"]["cross"]["keys"]
        == HOSTILE
    )
    assert (page.data["text"], page.data["translation"]) == (HOSTILE[1], HOSTILE[2])
    # The elements are those of a page without any mark.
    assert page.elements == Page(page_of(["a"], ["a"])).elements
    assert len(page.scripts) == 2 and page.scripts[1] == Page(page_of(["a"], ["a"])).scripts[1]
    assert not {"<", ">", "&"} & {*page.scripts[0]}


def test_a_page_fetches_nothing():
    text = page_of(["a"], ["a"])
    attributes = [pair for _, attributes in Page(text).elements for pair in attributes.items()]
    addresses = ("src", "href", "srcset", "action", "data", "poster")
    assert [value for name, value in attributes if name in addresses] == ["data:,"]
    (policy,) = (value for name, value in attributes if name == "content" and "src" in value)
    assert ("http-equiv", "Content-Security-Policy") in attributes and policy.startswith(
        "default-src 'none'; "
    )
    for word in (
        "http:",
        "https:",
        "//cdn",
        "url(",
        "@import",
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "innerHTML",
    ):
        assert word not in text


def test_a_page_knows_the_direction_of_each_side():
    shown = Page(
        page_of(["▁כלב", "</s>"], ["▁dog", "</s>"], text="«A» dog", translation="(1) כלב")
    ).data
    assert shown["directions"] == ["ltr", "rtl"]
    assert shown["attention"]["cross"]["directions"] == ["rtl", "ltr"]
    assert Page(page_of(["a"], ["a"], text="123 …", translation="")).data["directions"] == [
        "ltr",
        "ltr",
    ]


def test_bytes_are_shown_as_the_characters_that_they_make():
    def spelled(text):
        return [f"<0x{byte:02X}>" for byte in text.encode()]

    expected = ["▁a", "🐶 1/4", "🐶 2/4", "🐶 3/4", "🐶 4/4", "é 1/2", "é 2/2", "b", "$", "<"]
    assert readable(["▁a", *spelled("🐶é"), "b", *spelled("$<")]) == expected
    # A model may write bytes that make no character.
    broken = ["<0xF0>", "<0x9F>", "a", "<0x90>"]
    assert readable([*broken, *spelled("é")]) == [*broken, "é 1/2", "é 2/2"]


@pytest.mark.slow
def test_restricted_self_attention_shows_nothing_beyond_the_window(tiny_model_dir):
    attention = translate_with_attention(random_translator(tiny_model_dir, sliding_window=2), TEXT)
    weights = attention.by_kind["encoder"].weights
    places = np.arange(weights.shape[-1])
    is_near = abs(places[:, None] - places) <= 1
    assert len(places) > 3
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert (weights[..., ~is_near] == 0).all() and (weights[..., is_near] > 0).all()


def test_a_view_is_checked(translator, tmp_path):
    for view, name, most, received in (
        (AttentionView("cross", layer="4"), "layer", "3, the number of decoder layers", 4),
        (AttentionView("encoder", layer="3"), "layer", "2, the number of encoder layers", 3),
        (AttentionView(head="5"), "head", "4, the number of attention heads", 5),
    ):
        message = f"{name} must be at most {most} in the model; received {name}='{received}'"
        with pytest.raises(ConfigError, match=message):
            plot_attention(translator, TEXT, tmp_path / "a.html", view)
    with pytest.raises(ConfigError, match="must be Unicode text without NUL characters"):
        plot_attention(translator, "\ud800", tmp_path / "a.html")
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(
        ConfigError, match="kind must be one of cross, encoder, decoder; received kind='self'"
    ):
        AttentionView("self")
    for layer in ("0", "-1", "²", "1" * 5000, ""):
        with pytest.raises(
            ConfigError, match="layer must be a positive number, all or last; received"
        ):
            AttentionView(layer=layer)


@pytest.mark.slow
def test_the_command_writes_a_page_and_a_picture_of_every_head(
    tiny_model_dir, wordpiece_model_dir, tmp_path, capsys
):
    arguments = ["plot", "--model-dir", str(tiny_model_dir), "--text", TEXT, "--kind", "decoder"]
    main([*arguments, "--layer", "all", "--head", "2", "--output", str(tmp_path / "a.html")])
    main([*arguments, "--layer", "1", "--output", str(tmp_path / "a.svg")])
    assert capsys.readouterr().out == "Anna hat einen Baum, sieht!\n" * 2
    main([*arguments, "--text", TEXT * 9, "--output", str(tmp_path / "a.svg"), "--overwrite"])
    assert (
        "--text, line 1: too many tokens, truncated to model.max_length=64\n"
        in capsys.readouterr().err
    )
    shown = Page((tmp_path / "a.html").read_text(encoding="utf-8")).data["shown"]
    assert shown == {"kind": "decoder", "layer": 0, "head": 1}
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    main(
        [
            *arguments[:2],
            str(wordpiece_model_dir),
            *arguments[3:],
            "--output",
            str(tmp_path / "b.html"),
        ]
    )
    assert (
        Page((tmp_path / "b.html").read_text(encoding="utf-8")).data["attention"]["decoder"][
            "keys"
        ][0]
        == "[START]"
    )
