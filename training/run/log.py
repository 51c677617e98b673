"""The log of a training, for people: `log.csv`, and curves for TensorBoard."""

import csv
import io
import logging
import pathlib
import re
import time
from typing import Any

import keras
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import remove_leftovers, replacing

from .state import Progress

_log = logging.getLogger(__name__)


class WriteLog(keras.callbacks.Callback):
    """Writes the log after each validation. It goes after the callback that saves its rows in the training state.

    Both logs are made of these rows, so that a resumed run neither repeats nor loses one: `log.csv` is written whole,
    and TensorBoard gets a file for each validation.

    Args:
        model_dir: ModelDir.
        progress: Progress.
    """

    def __init__(self, model_dir: ModelDir, progress: Progress) -> None:
        super().__init__()
        self.model_dir = model_dir
        self.progress = progress

    def on_epoch_end(self, epoch: int, logs: dict[str, Any]) -> None:
        rows = self.progress.rows or []
        write_log(self.model_dir, rows)
        _write_events(self.model_dir.tensorboard_path, rows[-1])


def restore_log(model_dir: ModelDir, progress: Progress) -> None:
    """Makes the log of a model directory that of its training state.

    Version 0.1 kept the rows in `log.csv` alone; there they are taken from it.
    """
    if progress.rows is None:
        progress.rows = _rows_of_first_version(model_dir.log_path, progress.step)
    for directory in model_dir.tensorboard_path.glob("*"):
        remove_leftovers(directory)
    if progress.rows:
        write_log(model_dir, progress.rows)
        # A run that was killed after it had saved its state has not written the last one.
        _write_events(model_dir.tensorboard_path, progress.rows[-1])
    for path in model_dir.tensorboard_path.glob(f"*/{_event_file('*')}"):
        step = re.search(r"\d+", path.name)
        if step and int(step[0]) > progress.step:
            path.unlink()


def write_log(model_dir: ModelDir, rows: list[dict[str, Any]]) -> None:
    """Writes `log.csv`, whole."""
    columns = ["epoch", *sorted({name for row in rows for name in row} - {"epoch"})]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    with replacing(model_dir.log_path) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8", newline="")


def _rows_of_first_version(path: pathlib.Path, last_step: int) -> list[dict[str, Any]]:
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


def _write_events(directory: pathlib.Path, row: dict[str, Any]) -> None:
    curves = {name: value for name, value in row.items() if name not in ("epoch", "step")}
    validation = {name.removeprefix("val_"): value for name, value in curves.items() if name.startswith("val_")}
    train = {name: value for name, value in curves.items() if not name.startswith("val_")}
    for run, values in (("train", train), ("validation", validation)):
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        now = time.time()
        # The names sort as the steps do, as TensorBoard reads them.
        path = directory / run / _event_file(f"{row['step']:010d}")
        if path.is_file():
            continue
        with replacing(path) as temporary, open(temporary, "wb") as file:
            writer = RecordWriter(file)
            for event in (
                Event(wall_time=now, file_version="brain.Event:2"),
                Event(wall_time=now, step=row["step"], summary=summary),
            ):
                writer.write(event.SerializeToString())


def _event_file(step: str) -> str:
    return f"events.out.tfevents.{step}.keras_transformer"
