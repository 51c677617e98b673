"""Draws the pictures of the documentation, from the project's own functions and measurements.

python -m docs.pictures MODEL_DIR DIRECTORY
"""

import csv
import hashlib
import inspect
import json
import pathlib
import sys
from collections.abc import Callable
from typing import NamedTuple

import matplotlib
import numpy as np
import yaml
from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin

from examples import corpus

# Functions import Keras themselves: `make docs` imports this file to compare fingerprints only.

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
SENTENCE = "The woman bought the lamp because it was cheap."


def positions() -> Figure:
    """The encoding that is added to each position, and how alike positions are."""
    from keras import ops

    from keras_transformer import PositionalEncoding

    length, d_model = 100, 128
    encodings = PositionalEncoding()(np.zeros((1, length, d_model), "float32"))
    encoded = ops.convert_to_numpy(encodings)[0]
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    shown = left.imshow(
        encoded, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest"
    )
    figure.colorbar(shown, ax=left)
    left.set(title="what is added to each position", xlabel="feature", ylabel="position")
    for position in (20, 50, 80):
        right.plot(encoded @ encoded[position] / (d_model / 2), label=f"{position}")
    right.set(title="how alike positions are: cosine", xlabel="position", ylim=(0.4, 1.25))
    right.legend(title="with position", loc="upper center", ncols=3)
    for axes in (left, right):
        axes.title.set_fontsize("medium")
    return figure


def masks() -> Figure:
    """Which positions attend to which, with the code of each panel, by `MultiHeadAttention`."""
    from keras import ops

    from keras_transformer import MultiHeadAttention, PositionalEmbedding

    places = np.arange(8)
    embedded = PositionalEmbedding(vocab_size=10, d_model=8)(np.array([[5, 7, 2, 9, 4, 3, 0, 0]]))
    x = ops.convert_to_numpy(embedded)
    segments = places < 5
    same_segment = segments[:, None] == segments[None, :]
    attends = (places[None, :] <= places[:, None]) | (places[None, :] < 3)
    panels = [
        ("padding", "x = PositionalEmbedding(...)(token_ids)", embedded, {}, {}),
        ("causal", "use_causal_mask=True", x, {}, {"use_causal_mask": True}),
        ("sliding window", "sliding_window=3", x, {"sliding_window": 3}, {}),
        (
            "causal sliding window",
            "sliding_window=3, use_causal_mask=True",
            x,
            {"sliding_window": 3},
            {"use_causal_mask": True},
        ),
        (
            "two packed sequences",
            "attention_mask=same_segment",
            x,
            {},
            {"attention_mask": same_segment[None]},
        ),
        ("prefix", "attention_mask=attends", x, {}, {"attention_mask": attends[None]}),
    ]
    figure = Figure(figsize=(6, 9), layout="constrained")
    all_axes = figure.subplots(3, 2).flat
    for axes, (title, code, inputs, options, call_options) in zip(all_axes, panels):
        attention = MultiHeadAttention(num_heads=1, key_dim=8, **options)
        _, weights = attention(inputs, inputs, return_attention_scores=True, **call_options)
        axes.imshow(ops.convert_to_numpy(weights)[0, 0] > 0, cmap="Blues", vmin=0, vmax=1.3)
        axes.set_title(title, fontweight="bold", fontsize="medium", pad=20)
        axes.text(
            0.5,
            1.03,
            code,
            fontfamily="monospace",
            fontsize="x-small",
            ha="center",
            transform=axes.transAxes,
        )
        axes.set(xlabel="key", ylabel="query", xticks=places, yticks=places)
        axes.set_xticks(places[1:] - 0.5, minor=True)
        axes.set_yticks(places[1:] - 0.5, minor=True)
        axes.grid(which="minor", color="white")
        axes.tick_params(which="both", length=0)
    return figure


def schedule() -> Figure:
    """The learning rate by each value of `training.decay`."""
    from keras import ops

    from keras_transformer.config import TrainingConfig
    from keras_transformer.training.step.optimizer import learning_rate

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    steps = np.arange(0, 20_001, 200)
    for decay in ("inverse_sqrt", "cosine", "constant"):
        rate = learning_rate(512, TrainingConfig(steps=20_000, warmup_steps=4000, decay=decay))
        rates = [float(ops.convert_to_numpy(rate(ops.cast(step, "int64")))) for step in steps]
        axes.plot(steps, rates, label=decay)
    axes.set(
        xlabel="update",
        title="learning rate, with d_model=512, steps=20000, warmup_steps=4000",
        ylim=0,
    )
    axes.title.set_fontsize("medium")
    axes.legend(title="training.decay", loc="upper right", bbox_to_anchor=(1, 0.9))
    return figure


def results() -> Figure:
    """Quality, size and speed of the models of docs/results/models.csv."""
    with open(RESULTS / "models.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::-1]
    figure = Figure(figsize=(5.6, 2.6), layout="constrained")
    axes = figure.subplots()
    for number, row in enumerate(rows):
        bleu = float(row["bleu"])
        axes.plot(bleu, number, "o", color="C0")
        label = f"{bleu:.2f}; {int(row['parameters']) / 1e6:.1f} million"
        if row["sentences_per_second"]:
            label += f"; {row['sentences_per_second']} sentences/s"
        axes.annotate(
            label, (bleu, number), (0, 7), textcoords="offset points", ha="center", fontsize="small"
        )
    axes.set_yticks(range(len(rows)), [row["recipe"].replace(", ", "\n") for row in rows])
    axes.set(xlim=(39.5, 42.7), ylim=(-0.5, len(rows) - 0.3), xlabel="BLEU on test_2016_flickr")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


# An example of each part, and its folder.
FLOW = {
    "text": ("two files, line by line", "training/text"),
    "subwords": ("parts of words\nand their ids", "tokenizers"),
    "batches": ("rows of a length,\npadded with 0", "training/batches"),
    "model": ("encoder, decoder,\nloss of each token", "models, training/step"),
    "search": ("the best of four\nbeginnings, step by step", "decoding"),
    "SavedModel": ("text in, text out", "export"),
}


def flow() -> Figure:
    """The way of the data, in two rows, so that it can be read on a phone."""
    figure = Figure(figsize=(5.6, 3.2), layout="constrained")
    axes = figure.subplots()
    arrow = dict(arrowstyle="->", color="#2b6cb0")
    for number, (title, (example, folder)) in enumerate(FLOW.items()):
        row, column = divmod(number, 3)
        y = -2.5 * row
        box = dict(boxstyle="round,pad=0.5", facecolor="#e8f0fc", edgecolor="#2b6cb0")
        axes.text(column, y, title, ha="center", va="center", fontweight="bold", bbox=box)
        axes.text(column, y - 0.5, example, ha="center", va="top", fontsize="small")
        axes.text(
            column, y + 0.45, folder, ha="center", va="bottom", fontsize="small", color="#555555"
        )
        if column:
            axes.annotate("", (column - 0.36, y), (column - 0.62, y), arrowprops=arrow)
    axes.annotate("", (0.3, -1.6), (1.7, -1.3), arrowprops=arrow)
    axes.set(xlim=(-0.5, 2.5), ylim=(-3.7, 0.9))
    axes.axis("off")
    return figure


def table1() -> Figure:
    """The processor time of four kinds of layers over their sizes."""
    from benchmarks import table1 as benchmark

    measurements = json.loads((RESULTS / "table1.json").read_text(encoding="utf-8"))
    return benchmark.draw(measurements["sweeps"])


def attention(model_dir: str) -> Figure:
    """The source words that each word of a translation attends to, in the decoder's last layer."""
    from keras_transformer import Translator
    from keras_transformer.config.model import AttentionView
    from keras_transformer.translation.attention import attention_figure, translate_with_attention

    translator = Translator.load(model_dir)
    translation = translate_with_attention(translator, SENTENCE)
    view = AttentionView()
    config = translator.model.config
    return attention_figure(translation.by_kind[view.kind], view.layers(config), view.heads(config))


def training(model_dir: str) -> Figure:
    """The curves of training the demo's model."""
    from keras_transformer.training.curves import training_figure

    return training_figure([model_dir])


def text_of(name: str) -> Callable[[], str]:
    return lambda: (RESULTS / name).read_text(encoding="utf-8")


def demo_data() -> str:
    """Returns the data of the demo's model: its recipe, and the beginning of its text."""
    recipe = (ROOT / "training" / "recipes" / "demo.yaml").read_text(encoding="utf-8")
    return json.dumps([yaml.safe_load(recipe), corpus.generate(100), SENTENCE], sort_keys=True)


class Picture(NamedTuple):
    """How a picture is drawn, and the data that it shows."""

    draw: Callable[..., Figure] | None  # None: a screenshot, see screenshots.py
    data: Callable[[], str] = str


PICTURES = {
    "attention.svg": Picture(attention, demo_data),
    "attention-page.png": Picture(None, demo_data),
    "flow.svg": Picture(flow, lambda: repr(FLOW)),
    "masks.svg": Picture(masks),
    "positions.svg": Picture(positions),
    "results.svg": Picture(results, text_of("models.csv")),
    "schedule.svg": Picture(schedule),
    "serve.png": Picture(None, demo_data),
    "table1.svg": Picture(table1, text_of("table1.json")),
    "training.svg": Picture(training, demo_data),
}


def fingerprint(name: str) -> str:
    """Returns a hash of a picture's data, and of the function that draws it."""
    draw, data = PICTURES[name]
    source = "".join(inspect.getsource(draw).split()) if draw else ""
    return hashlib.sha256(f"{name}\n{source}\n{data()}".encode()).hexdigest()


def stale(directory: pathlib.Path) -> list[pathlib.Path]:
    """Returns the pictures of a directory that do not hold the fingerprint of today's data."""
    paths = sorted([*directory.glob("*.svg"), *directory.glob("*.png")])
    return [
        path
        for path in paths
        if path.name not in PICTURES or fingerprint(path.name).encode() not in path.read_bytes()
    ]


def sign_screenshot(path: pathlib.Path) -> None:
    """Writes the fingerprint into a PNG file, as `main` does into SVG files."""
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Source", fingerprint(path.name))
    with Image.open(path) as image:
        image.save(path, pnginfo=notes, optimize=True)


def main() -> None:
    model_dir, directory = sys.argv[1:]
    # The same file each time, with letters instead of their outlines.
    matplotlib.rcParams.update({"svg.hashsalt": "keras-transformer", "svg.fonttype": "none"})
    for name, picture in PICTURES.items():
        if picture.draw:
            arguments = [model_dir] if picture.data is demo_data else []
            figure = picture.draw(*arguments)
            path = pathlib.Path(directory, name)
            metadata = {"Creator": None, "Date": None, "Source": fingerprint(name)}
            figure.savefig(path, facecolor="white", metadata=metadata)
            print(path)


if __name__ == "__main__":
    main()
