"""TensorBoard shows translations of the validation text: those by which BLEU is measured."""

import dataclasses
import html
import re

import pytest
from tensorboard import plugin_util
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_training import pairs, train_here

from keras_transformer.training.run.report import _as_markdown
from keras_transformer.translation import Translator


def tables(model_dir):
    """The tables of translations by step, as TensorBoard reads them."""
    accumulator = EventAccumulator(str(model_dir.tensorboard_path / "validation"))
    accumulator.Reload()
    if "translations" not in accumulator.Tags()["tensors"]:
        return {}
    assert accumulator.SummaryMetadata("translations").plugin_data.plugin_name == "text"
    cells_of_step = {}
    for event in accumulator.Tensors("translations"):
        rows, columns = (size.size for size in event.tensor_proto.tensor_shape.dim)
        cells = [text.decode() for text in event.tensor_proto.string_val]
        assert len(cells) == rows * columns
        cells_of_step[event.step] = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    return cells_of_step


def rendered(cell):
    return html.unescape(re.sub("</?p>", "", plugin_util.markdown_to_safe_html(cell)))


@pytest.mark.slow
def test_each_validation_has_the_translations_that_bleu_is_of(tmp_path, monkeypatch):
    requests, translate = [], Translator.__call__

    def counted(translator, texts):
        requests.append(texts)
        return translate(translator, texts)

    monkeypatch.setattr(Translator, "__call__", counted)
    overrides = ["training.steps=4", "training.validate_every=2", "training.keep_checkpoints=2"]
    model_dir = train_here(tmp_path / "model", *overrides, "training.validate_by=bleu")
    text = pairs(360, 400)
    # Once for each validation.
    assert requests == [text.source, text.source]

    cells_of_step = tables(model_dir)
    assert [*cells_of_step] == [2, 4]
    greedy = dataclasses.replace(model_dir.read_config().decoding, beam_size=1)
    translator = Translator.load(model_dir, greedy)
    for step, path in model_dir.checkpoints().items():
        translator.model.load_weights(path)
        expected = zip(text.source[:5], text.target[:5], translate(translator, text.source[:5]))
        header, *rows = cells_of_step[step]
        assert header == ["source", "reference", "translation"]
        assert [[*map(rendered, row)] for row in rows] == [[*row] for row in expected]


@pytest.mark.slow
def test_nothing_is_translated_for_samples_alone(tmp_path, monkeypatch):
    monkeypatch.delattr(Translator, "__call__")
    model_dir = train_here(tmp_path / "model", "training.steps=1")
    assert tables(model_dir) == {}


@pytest.mark.parametrize(
    "text",
    [
        "# one",
        "1. *two* _three_",
        "> q",
        "- x",
        "a | b",
        "<b>x</b> & &amp;",
        "[a](b) `c` \\* !",
        "🐶 כלב",
        "",
    ],
)
def test_a_text_is_shown_as_it_is(text):
    assert rendered(_as_markdown(text)) == text
