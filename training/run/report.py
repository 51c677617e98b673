"""Reports a training run: progress bar, validation metrics, `log.csv` and TensorBoard."""

import collections
import csv
import dataclasses
import errno
import html
import itertools
import logging
import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sacrebleu
import tensorflow as tf
from tensorboard.plugins.text.summary_v2 import text_pb

from keras_transformer.config import Config
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import remove_leftovers, replacing
from keras_transformer.models import Transformer
from keras_transformer.runtime.progress import ProgressBar, counted
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.translation import Translator

from ..bleu import make_bleu
from ..step.model import TrainingStep
from ..text.corpus import SentencePairs
from .ranking import MIN_REFERENCE_4GRAMS, doubt_about_bleu
from .state import Row

_log = logging.getLogger(__name__)

# The progress bar shows the mean speed of this many recent steps.
_LAST_STEPS = 50
_SECONDS_PER_DESCRIPTION = 0.5
_NUM_SAMPLES = 5
# The name of a TensorBoard event file. It contains the step.
_EVENT_FILE = "events.out.tfevents.{}.keras_transformer"


class ProgressReport:
    """A progress bar for the steps, with a log line after every validation.

    Args:
        target_tokens_per_step: Mean number of target tokens per step, excluding padding.
    """

    def __init__(self, bar: ProgressBar, target_tokens_per_step: float) -> None:
        self.bar = bar
        self.target_tokens_per_step = target_tokens_per_step

    def before_first_step(self) -> None:
        """Starts measuring the speed of the steps before the next validation."""
        self._num_steps = 0
        self._begin = self._described = time.monotonic()
        self._last_ends = collections.deque([self._begin], maxlen=_LAST_STEPS + 1)

    def after_step(self, loss: float, model: TrainingStep) -> None:
        now = time.monotonic()
        self._last_ends.append(now)
        self._num_steps += 1
        self.bar.advance()
        # Update the text only twice a second, because reading the learning rate is slow.
        if now - self._described >= _SECONDS_PER_DESCRIPTION:
            self._described = now
            speed = self._speed(len(self._last_ends) - 1, now - self._last_ends[0])
            self.bar.details = f"loss {loss:.3f}, {speed}, learning rate {model.learning_rate:.1e}"

    def after_validation(self, logs: Mapping[str, float], doubt_about_bleu: str = "") -> None:
        items = [
            f"loss {logs['loss']:.3f}",
            f"validation loss {logs['val_loss']:.3f}",
            f"perplexity {logs['val_perplexity']:.2f}",
            f"accuracy {logs['val_accuracy']:.1%}",
        ]
        if "val_bleu" in logs:
            doubt = f" ({doubt_about_bleu}: perplexity ranks)" if doubt_about_bleu else ""
            items.append(f"BLEU {logs['val_bleu']:.2f}{doubt}")
            items.append(f"chrF {logs['val_chrf']:.2f}")
        if "skipped_steps" in logs:
            items.append(f"{counted(int(logs['skipped_steps']), 'step')} skipped")
        items.append(self._speed(self._num_steps, self._last_ends[-1] - self._begin))
        _log.info(f"step {logs['step']:,}: {', '.join(items)}")

    def _speed(self, num_steps: int, seconds: float) -> str:
        return f"{num_steps * self.target_tokens_per_step / seconds:,.0f} target tokens/s"


class Sample(NamedTuple):
    """A sentence of the validation text with its reference and its translation."""

    source: str
    reference: str
    translation: str


class MeasuredBleu(NamedTuple):
    """BLEU and chrF of a model on the validation text."""

    score: float
    chrf: float
    # Why BLEU cannot rank these translations, such as "4 matching 4-grams", or "" if it can.
    doubt: str
    samples: list[Sample]  # the first few translations


def bleu_measure(
    model: Transformer, tokenizers: TokenizerPair, config: Config, pairs: SentencePairs
) -> Callable[[], MeasuredBleu]:
    """Returns a function that translates the validation text with greedy search and measures BLEU.

    If the text has several tags, the BLEU of each tag is logged.
    """
    runs = [(number, tag) for number, tag in pairs.tags or ((len(pairs), ""),) if number]
    # Each tag needs its own graph.
    translators = {}
    for _, tag in runs:
        decoding_of_tag = dataclasses.replace(config.decoding, beam_size=1, tag=tag or None)
        translators[tag] = Translator(model, tokenizers, decoding_of_tag)
    bleu = make_bleu(config.training.bleu_tokenizer or "13a")
    chrf = sacrebleu.metrics.CHRF()
    # Compare the references with themselves to count their 4-grams.
    most_matches = bleu.corpus_score(list(pairs.target), [list(pairs.target)]).counts[-1]
    if most_matches < MIN_REFERENCE_4GRAMS:
        _log.info(
            f"validation text: its references have {counted(most_matches, '4-gram')}, fewer than "
            f"the {MIN_REFERENCE_4GRAMS} that BLEU needs to rank the checkpoints; "
            "perplexity ranks them"
        )

    def measure() -> MeasuredBleu:
        texts = zip(pairs.source, pairs.target, strict=True)
        samples: list[Sample] = []
        bleu_of_tags = []
        for number, tag in runs:
            sources, references = zip(*itertools.islice(texts, number), strict=True)
            translations = translators[tag](list(sources))
            samples_of_tag = list(map(Sample, sources, references, translations))
            samples += samples_of_tag
            if len(runs) > 1:
                score = _score(bleu, samples_of_tag).score
                bleu_of_tags.append(f"{tag or 'without a tag'} {score:.2f}")
        if bleu_of_tags:
            _log.info(f"BLEU {', '.join(bleu_of_tags)}")
        result = _score(bleu, samples)
        doubt = doubt_about_bleu(most_matches, result.counts[-1])
        return MeasuredBleu(
            result.score, _score(chrf, samples).score, doubt, samples[:_NUM_SAMPLES]
        )

    return measure


def _score(metric: sacrebleu.metrics.BLEU | sacrebleu.metrics.CHRF, samples: list[Sample]) -> Any:
    references = [sample.reference for sample in samples]
    return metric.corpus_score([sample.translation for sample in samples], [references])


def write_log(model_dir: ModelDir, rows: Sequence[Row], samples: Sequence[Sample] = ()) -> None:
    """Writes the log after a validation: `log.csv`, and TensorBoard files for this validation.

    Both are written from the rows in the training state, so a resumed run neither repeats nor loses
    a row. The samples, which are translations from this validation, are not part of the state.
    """
    columns = ["epoch", *sorted({name for row in rows for name in row} - {"epoch"})]
    with (
        replacing(model_dir.log_path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    step = int(rows[-1]["step"])
    train: Row = {}
    validation: Row = {}
    for name, value in rows[-1].items():
        if name.startswith("val_"):
            validation[name.removeprefix("val_")] = value
        elif name not in ("epoch", "step"):
            train[name] = value
    for run, values, texts in (("train", train, ()), ("validation", validation, samples)):
        # Pad the step with zeros, because TensorBoard reads files in the order of their names.
        path = model_dir.tensorboard_path / run / _EVENT_FILE.format(f"{step:010d}")
        if not path.is_file():
            with replacing(path) as temporary:
                _write_event(temporary, step, values, texts)


def restore_log(model_dir: ModelDir, rows: Sequence[Row], step: int) -> None:
    """Restores the log of a model directory from the training state, up to a given step."""
    for directory in model_dir.tensorboard_path.glob("*"):
        remove_leftovers(directory)
    if rows:
        # A run that was killed after saving its state may not have written the last row.
        write_log(model_dir, rows)
    for path in model_dir.tensorboard_path.glob(f"*/{_EVENT_FILE.format('*')}"):
        number = re.search(r"\d+", path.name)
        if number and int(number[0]) > step:
            path.unlink()


def _write_event(path: pathlib.Path, step: int, values: Row, samples: Sequence[Sample]) -> None:
    """Writes all values as a single record in a single file, unlike `tf.summary`."""
    now = time.time()
    summary = tf.compat.v1.Summary()
    for tag, value in values.items():
        summary.value.add(tag=tag, simple_value=value)
    if samples:
        table = [Sample._fields, *([_as_markdown(text) for text in sample] for sample in samples)]
        summary.MergeFromString(text_pb("translations", table).SerializeToString())
    try:
        with tf.io.TFRecordWriter(os.fsencode(path)) as writer:
            for event in (
                tf.compat.v1.Event(wall_time=now, file_version="brain.Event:2"),
                tf.compat.v1.Event(wall_time=now, step=step, summary=summary),
            ):
                writer.write(event.SerializeToString())
    except tf.errors.OpError as error:
        # The message is "PATH; File too large", for example, with the path of the temporary file.
        raise OSError(errno.EIO, str(error.message).rpartition("; ")[2]) from None


def _as_markdown(text: str) -> str:
    """Escapes text so that TensorBoard, which renders Markdown, shows it literally."""
    return re.sub(r"[\\`*_{}\[\]()#+.!|-]", r"\\\g<0>", html.escape(text, quote=False))
