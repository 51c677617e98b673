"""Plots the logs of training runs as a picture or an HTML page."""

import csv
import io
import json
import math
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.checks import picture_path
from keras_transformer.errors import ConfigError, InvalidFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import read_limited, replacing
from keras_transformer.runtime.fonts import font_families

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The title of each panel, and the line style of each column of the log that it shows.
_PANELS = {
    "loss (dashed: of training)": {"loss": "--", "val_loss": "-"},
    "perplexity": {"val_perplexity": "-"},
    "BLEU (dashed: chrF)": {"val_bleu": "-", "val_chrf": "--"},
    "learning rate": {"learning_rate": "-"},
}
# Each validation takes about 200 bytes of the log.
_MAX_LOG_BYTES = 64 * 2**20
_TEMPLATE = pathlib.Path(__file__).with_name("curves_page.html")


def read_log(model_dir: ModelDir) -> list[dict[str, float]]:
    """Reads the values of each validation by name, such as `step` and `val_perplexity`.

    Raises:
        ConfigError: The directory is not a model directory, or has no log.
        InvalidFileError: The log is empty, contains anything other than numbers, or has a line
            without a step or validation loss.
    """
    model_dir.read_config()
    path = model_dir.log_path
    if not path.is_file():
        raise ConfigError(f"{model_dir}: no training log (it has no {path.name})")
    content = read_limited(path, _MAX_LOG_BYTES)
    with io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, restval="")
        try:
            # The field of a value that a validation did not measure is empty.
            rows = [
                {name: float(value) for name, value in row.items() if value != ""} for row in reader
            ]
        except (ValueError, TypeError, csv.Error):
            raise InvalidFileError(
                f"{path}: line {reader.line_num} of the training log must contain only numbers, "
                "at most one per column"
            ) from None
    if not all({"step", "val_loss"} <= {*row} for row in rows):
        raise InvalidFileError(f"{path}: not a training log (a line has no step or no val_loss)")
    if not rows:
        raise InvalidFileError(f"{path}: the log has no validation yet")
    return rows


def training_figure(model_dirs: Sequence[str | os.PathLike[str] | ModelDir]) -> "Figure":
    """Plots loss, perplexity, BLEU with chrF, and learning rate of training runs against the step.

    Each run has its own color. Perplexity has a logarithmic scale. Panels without data, such as
    BLEU if no run measured it, are left out.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogFormatter

    # Names of directories may not be UTF-8.
    names = [str(ModelDir(model_dir)).encode(errors="replace").decode() for model_dir in model_dirs]
    logs = [read_log(ModelDir(model_dir)) for model_dir in model_dirs]
    logged = {column for rows in logs for row in rows for column in row}
    panels = [(title, styles) for title, styles in _PANELS.items() if logged & {*styles}]
    num_columns = min(len(panels), 2)
    num_rows = -(-len(panels) // 2)
    figure = Figure(figsize=(4.8 * num_columns, 3.2 * num_rows), layout="constrained")
    for place, (title, styles) in enumerate(panels, start=1):
        panel = figure.add_subplot(num_rows, num_columns, place, title=title, xlabel="step")
        panel.grid(alpha=0.3)
        if title == "perplexity":
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter(LogFormatter())
            panel.yaxis.set_minor_formatter(LogFormatter())
        for number, rows in enumerate(logs):
            for column, style in styles.items():
                points = [(row["step"], row.get(column, math.nan)) for row in rows]
                panel.plot(*zip(*points), style, color=f"C{number % 10}", marker=".")
    handles = [Line2D([], [], color=f"C{number % 10}") for number in range(len(names))]
    legend = figure.legend(handles, [""] * len(names), loc="outside lower center")
    families = font_families(names)
    for text, name in zip(legend.get_texts(), names):
        # Show names literally. Otherwise, "$" would begin a formula, and a leading "_" would hide
        # the label.
        text.set(text=name, parse_math=False, family=families)
    return figure


def training_page(model_dirs: Sequence[str | os.PathLike[str] | ModelDir]) -> str:
    """Returns an HTML page with the curves of `training_figure`.

    The page is self-contained and needs no network.
    """
    logs = [read_log(ModelDir(model_dir)) for model_dir in model_dirs]
    panels = []
    for title, styles in _PANELS.items():
        curves = []
        for run, rows in enumerate(logs):
            for column, style in styles.items():
                points = [
                    (row["step"], row[column])
                    for row in rows
                    if math.isfinite(row.get(column, math.nan))
                ]
                if points:
                    curves.append({"run": run, "dashed": style == "--", "points": points})
        if curves:
            panels.append({"title": title, "logarithmic": title == "perplexity", "curves": curves})
    data = {"runs": [str(ModelDir(model_dir)) for model_dir in model_dirs], "panels": panels}
    # The JSON must not end the script element that contains it.
    text = json.dumps(data, allow_nan=False).replace("<", r"\u003c")
    return _TEMPLATE.read_text(encoding="utf-8").replace("{{data}}", text)


def plot_training(
    model_dirs: Sequence[str | os.PathLike[str] | ModelDir], path: str | os.PathLike[str]
) -> None:
    """Writes `training_figure` as .png, .svg or .pdf, or `training_page` as .html.

    Raises:
        ConfigError: The path has another suffix, or a directory is not a model directory with a
            log.
        InvalidFileError: A log is damaged or empty.
    """
    picture_path("output", os.fspath(path))
    if os.fspath(path).lower().endswith(".html"):
        page = training_page(model_dirs)
        with replacing(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
        return
    figure = training_figure(model_dirs)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
