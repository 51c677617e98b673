"""The task of the training benchmark: text and batches as files, the same for every contender."""

import argparse
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.command import SIZES
from benchmarks.processes import Report

if TYPE_CHECKING:
    from keras_transformer.training.text.corpus import SentencePairs

# Source, target and labels: int32 (rows, length), 0 where there is no token.
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


class TrainingTask:
    """A directory with the text, and with an epoch of batches of `keras-transformer train`.

        train.en, train.de, valid.en, valid.de   the text
        batches.npz                              the batches, as token ids
        task.json                                sizes and counts

    Rows without a sentence, which fill up the last batch of a shape in `keras-transformer train`,
    are left out of the batches.

    Args:
        path: str or path of the directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """The text and settings of `train_command`, the model's sizes, and counts."""
        return json.loads((self.path / "task.json").read_text())

    @functools.cached_property
    def batches(self) -> list[Batch]:
        """The batches of an epoch."""
        with np.load(self.path / "batches.npz") as arrays:
            return [
                (arrays[f"source_{i}"], arrays[f"target_{i}"], arrays[f"labels_{i}"])
                for i in range(self.facts["steps"])
            ]

    def batches_by_lengths(self) -> dict[tuple[int, int], list[Batch]]:
        """Returns the batches by source length and target length.

        The last batch of its lengths may have fewer rows.
        """
        by_lengths: dict[tuple[int, int], list[Batch]] = {}
        for batch in self.batches:
            by_lengths.setdefault((batch[0].shape[1], batch[1].shape[1]), []).append(batch)
        return by_lengths

    def warmup_batches(self) -> list[Batch]:
        """Returns one batch of each pair of lengths, to train on before time is measured."""
        return [batches[0] for batches in self.batches_by_lengths().values()]

    def make_report(self, seconds: float, versions: Mapping[str, str]) -> Report:
        """Makes the report of a contender: `value` is its speed in target tokens per second."""
        return {
            "value": self.facts["target_tokens"] / seconds,
            "seconds": seconds,
            "versions": versions,
        }


def make_parser(documentation: str | None) -> argparse.ArgumentParser:
    """Makes the parser of a contender; the first line of its docstring is the description."""
    parser = argparse.ArgumentParser(
        description=(documentation or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("task", metavar="TASK", help="the task's directory")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    return parser


def count_tokens(rows: np.ndarray) -> int:
    """Returns the number of tokens in padded rows."""
    return int(np.count_nonzero(rows))


def prepare(
    path: str | os.PathLike[str],
    train_pairs: "SentencePairs",
    valid_pairs: "SentencePairs",
    settings: Mapping[str, object],
) -> TrainingTask:
    """Writes a task.

    Args:
        path: str or path of the directory, which is made if it does not exist.
        train_pairs: SentencePairs to train on and to learn the vocabulary from.
        valid_pairs: SentencePairs to validate on.
        settings: Mapping from fields of the recipe to their values.

    Raises:
        ConfigError: The text is too small for the vocabulary.
    """
    from benchmarks.text import write_pairs
    from keras_transformer.tokenizers import TokenizerPair
    from keras_transformer.tokenizers.text_codec import TextCodec
    from keras_transformer.training.batches.encoded_pairs import Epochs, encode
    from keras_transformer.training.batches.pipeline import plan_batches, training_dataset
    from keras_transformer.training.batches.vocabulary import train_tokenizer
    from keras_transformer.training.recipe import load_recipe

    task = TrainingTask(path)
    task.path.mkdir(parents=True, exist_ok=True)
    source, target = write_pairs(train_pairs, task.path / "train")
    valid_source, valid_target = write_pairs(valid_pairs, task.path / "valid")
    config = load_recipe(None, [f"{name}={value}" for name, value in settings.items()])

    all_lines = itertools.chain(train_pairs.source, train_pairs.target)
    tokenizer = train_tokenizer(all_lines, "bpe", config.tokenizer.vocab_size)
    codec = TextCodec(TokenizerPair(tokenizer, tokenizer), config.model.max_length)
    encoded = encode(Epochs(train_pairs), codec, task.path / "token_ids")
    plan = plan_batches(
        encoded,
        tokens_per_batch=config.training.tokens_per_batch,
        num_buckets=config.training.num_buckets,
    )
    # The second epoch, because `keras-transformer train` compiles in its first one and is timed in
    # its second.
    dataset = training_dataset(
        plan, seed=config.training.seed, start_id=tokenizer.start_id, first_step=plan.num_steps
    )
    dataset = dataset.take(plan.num_steps)
    arrays = {}
    target_tokens = 0
    for i, (inputs, labels) in enumerate(dataset.as_numpy_iterator()):
        has_sentence = labels.any(axis=1)
        for name, rows in {**inputs, "labels": labels}.items():
            arrays[f"{name}_{i}"] = rows[has_sentence]
        target_tokens += count_tokens(labels)
    np.savez(task.path / "batches.npz", **arrays)
    facts = {
        "text": {
            "--source": str(source),
            "--target": str(target),
            "--valid-source": str(valid_source),
            "--valid-target": str(valid_target),
        },
        "settings": dict(settings),
        "sizes": {name: getattr(config.model, name) for name in SIZES},
        "vocab_size": tokenizer.vocab_size,
        "max_length": config.model.max_length,
        "pairs": len(encoded),
        "steps": plan.num_steps,
        "target_tokens": target_tokens,
        "padding": plan.padding_share,
    }
    (task.path / "task.json").write_text(json.dumps(facts))
    return task
