"""The log of a training, for people: `log.csv`, and for TensorBoard curves and translations."""

import csv
import errno
import html
import io
import logging
import pathlib
import re
import time
from collections.abc import Sequence

import tensorflow as tf
from tensorboard.plugins.text.summary_v2 import text_pb

from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import remove_leftovers, replacing

from .state import Row, RunState
from .validation import Sample

_log = logging.getLogger(__name__)


def write_log(model_dir: ModelDir, rows: Sequence[Row], samples: Sequence[Sample] = ()) -> None:
    """Writes the log after a validation.

    Both logs are made of the rows that the training state has, so that a resumed run neither repeats nor loses one:
    `log.csv` is written whole, and TensorBoard gets a file for each validation.

    Args:
        model_dir: ModelDir.
        rows: the rows of all validations.
        samples: translations of the last one, which the state does not have. Defaults to none.
    """
    _write_table(model_dir.log_path, rows)
    _write_events(model_dir.tensorboard_path, rows[-1], samples)


def restore_log(model_dir: ModelDir, state: RunState) -> None:
    """Makes the log of a model directory that of its training state.

    Version 0.1 kept the rows in `log.csv` alone; there they are taken from it.
    """
    if state.rows is None:
        state.rows = _rows_of_first_version(model_dir.log_path, state.step)
    for directory in model_dir.tensorboard_path.glob("*"):
        remove_leftovers(directory)
    if state.rows:
        # A run that was killed after it had saved its state has not written the last one.
        write_log(model_dir, state.rows)
    for path in model_dir.tensorboard_path.glob(f"*/{_event_file('*')}"):
        step = re.search(r"\d+", path.name)
        if step and int(step[0]) > state.step:
            path.unlink()


def _write_table(path: pathlib.Path, rows: Sequence[Row]) -> None:
    columns = ["epoch", *sorted({name for row in rows for name in row} - {"epoch"})]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    with replacing(path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8", newline="")


def _rows_of_first_version(path: pathlib.Path, last_step: int) -> list[Row]:
    if not path.is_file():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [{name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)]
        # A run that was resumed may have written a row again.
        by_step = {row["step"]: row for row in rows if row["step"] <= last_step}
    except (ValueError, KeyError, TypeError, csv.Error):
        _log.warning(f"{path}: the log cannot be read; a new one begins")
        return []
    return [by_step[step] for step in sorted(by_step)]


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _write_events(directory: pathlib.Path, row: Row, samples: Sequence[Sample]) -> None:
    curves = {name: value for name, value in row.items() if name not in ("epoch", "step")}
    validation = {name.removeprefix("val_"): value for name, value in curves.items() if name.startswith("val_")}
    train = {name: value for name, value in curves.items() if not name.startswith("val_")}
    for run, values, texts in (("train", train, ()), ("validation", validation, samples)):
        # The names sort as the steps do, as TensorBoard reads them.
        path = directory / run / _event_file(f"{int(row['step']):010d}")
        if not path.is_file():
            with replacing(path) as temporary:
                _write_event(temporary, int(row["step"]), values, texts)


def _write_event(path: pathlib.Path, step: int, values: Row, samples: Sequence[Sample]) -> None:
    """Writes what `tf.summary` would, but with all values in a single record of a file whose name is given."""
    now = time.time()
    summary = tf.compat.v1.Summary()
    for tag, value in values.items():
        summary.value.add(tag=tag, simple_value=value)
    if samples:
        table = [Sample._fields, *([_as_markdown(text) for text in sample] for sample in samples)]
        summary.MergeFromString(text_pb("translations", table).SerializeToString())
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for event in (
                tf.compat.v1.Event(wall_time=now, file_version="brain.Event:2"),
                tf.compat.v1.Event(wall_time=now, step=step, summary=summary),
            ):
                writer.write(event.SerializeToString())
    except tf.errors.OpError as error:
        # "PATH; File too large", where the path is that of the temporary file.
        raise OSError(errno.EIO, str(error.message).rpartition("; ")[2]) from None


def _as_markdown(text: str) -> str:
    """The text as it is, for TensorBoard, which reads Markdown."""
    return re.sub(r"[\\`*_{}\[\]()#+.!|-]", r"\\\g<0>", html.escape(text, quote=False))


def _event_file(step: str) -> str:
    return f"events.out.tfevents.{step}.keras_transformer"
