"""The task of the training benchmark: text and batches as files, the same for every contender.

Contenders that run in another environment read the files with NumPy and JSON only.
"""

import argparse
import functools
import json
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.processes import Report

if TYPE_CHECKING:
    from keras_transformer.training.batches.plan import BatchPlan
    from keras_transformer.training.text.corpus import SentencePairs

    from keras_transformer.config import Config
    from keras_transformer.tokenizers import Tokenizer

# Source, target and labels: int32 (rows, length), 0 where there is no token.
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


class TrainingTask:
    """A directory with the text, and with an epoch of batches as `keras-transformer train` makes them.

        train.en, train.de, valid.en, valid.de   the text
        recipe.yaml                              the recipe of `keras-transformer train`, without its steps
        batches.npz                              the batches, as token ids
        ids.en, ids.de, vocabulary.txt           the text as token ids, for contenders that make their own batches
        task.json                                sizes and counts

    Rows without a sentence, which fill up the last batch of a shape in `keras-transformer train`, are left out of the
    batches.

    Args:
        path: str or path of the directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """The model's `sizes`, `vocab_size` and `max_length`; `tokens_per_batch`; counts of an epoch."""
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
        """Returns the batches by source length and target length. The last one of its lengths may have fewer rows."""
        found: dict[tuple[int, int], list[Batch]] = {}
        for batch in self.batches:
            found.setdefault((batch[0].shape[1], batch[1].shape[1]), []).append(batch)
        return found

    def warmup_batches(self) -> list[Batch]:
        """Returns one batch of each pair of lengths, to train on before time is measured."""
        return [batches[0] for batches in self.batches_by_lengths().values()]

    def make_report(self, seconds: float, versions: Mapping[str, str], **more: Any) -> Report:
        """Makes the report of a contender.

        Args:
            seconds: float. The time that the epoch took.
            versions: Mapping from packages to versions.
            more: what else the report contains.
        """
        speed = self.facts["target_tokens"] / seconds
        return {"value": speed, "seconds": seconds, "versions": dict(versions), **more}


def make_parser(documentation: str | None) -> argparse.ArgumentParser:
    """Makes the parser of a contender: the task, and `--precision`.

    Args:
        documentation: str. Docstring of the module, whose first line is the description.
    """
    parser = argparse.ArgumentParser(description=(documentation or "").partition("\n")[0])
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
    *,
    vocab_size: int,
    sizes: Mapping[str, Any],
    tokens_per_batch: int,
) -> TrainingTask:
    """Writes a task.

    Args:
        path: str or path of the directory, which is made if it does not exist.
        train_pairs: SentencePairs to train on.
        valid_pairs: SentencePairs to validate on.
        vocab_size: int. Size of the vocabulary that is learned from `train_pairs`.
        sizes: Mapping. The model's sizes, fields of TransformerConfig.
        tokens_per_batch: int, see TrainingConfig.

    Raises:
        ConfigError: The text is too small for the vocabulary.
    """
    from keras_transformer.training.batches.encoded_pairs import encode
    from keras_transformer.training.batches.plan import plan_batches

    from benchmarks.model import learn_tokenizer
    from benchmarks.text import write_pairs

    task = TrainingTask(path)
    task.path.mkdir(parents=True, exist_ok=True)
    write_pairs(train_pairs, task.path / "train")
    write_pairs(valid_pairs, task.path / "valid")
    config = _write_recipe(task.path / "recipe.yaml", vocab_size, sizes, tokens_per_batch)
    tokenizer = learn_tokenizer(train_pairs, vocab_size)
    write_token_ids(task.path, train_pairs, tokenizer)
    encoded = encode(train_pairs, (tokenizer, tokenizer), config.model.max_length, task.path / "token_ids")
    plan = plan_batches(encoded, tokens_per_batch=tokens_per_batch, num_buckets=config.training.num_buckets)
    batches = _second_epoch(plan, config.training.seed, tokenizer.start_id)
    arrays = {
        f"{name}_{i}": rows
        for i, batch in enumerate(batches)
        for name, rows in zip(("source", "target", "labels"), batch, strict=True)
    }
    np.savez(task.path / "batches.npz", **arrays)  # type: ignore[arg-type]
    facts = {
        "sizes": dict(sizes),
        "vocab_size": tokenizer.vocab_size,
        "tokens_per_batch": tokens_per_batch,
        "max_length": config.model.max_length,
        "pairs": len(encoded),
        "steps": plan.num_steps,
        "source_tokens": sum(count_tokens(source) for source, _, _ in batches),
        "target_tokens": sum(count_tokens(labels) for _, _, labels in batches),
        "padding": plan.padding_share,
    }
    (task.path / "task.json").write_text(json.dumps(facts))
    return task


def _write_recipe(path: pathlib.Path, vocab_size: int, sizes: Mapping[str, Any], tokens_per_batch: int) -> "Config":
    import yaml
    from keras_transformer.training.recipe import load_recipe

    sections = {
        "model": dict(sizes),
        "tokenizer": {"kind": "bpe", "vocab_size": vocab_size},
        "training": {"tokens_per_batch": tokens_per_batch, "keep_checkpoints": 1, "average_last": 0},
    }
    path.write_text(yaml.safe_dump(sections))
    return load_recipe(path)


def _second_epoch(plan: "BatchPlan", seed: int, start_id: int) -> list[Batch]:
    """The second epoch, because `keras-transformer train` is timed in its second; in the first it compiles."""
    from keras_transformer.training.batches.pipeline import training_dataset

    dataset = training_dataset(plan, seed=seed, start_id=start_id, first_step=plan.num_steps)
    batches = []
    for inputs, labels in dataset.take(plan.num_steps).as_numpy_iterator():
        has_sentence = labels.any(axis=1)
        batches.append((inputs["source"][has_sentence], inputs["target"][has_sentence], labels[has_sentence]))
    return batches


def write_token_ids(path: pathlib.Path, pairs: "SentencePairs", tokenizer: "Tokenizer") -> None:
    """Writes a parallel text as token ids (ids.en, ids.de) with their vocabulary (vocabulary.txt), for OpenNMT-tf.

    Args:
        path: path of the directory.
        pairs: SentencePairs.
        tokenizer: Tokenizer.
    """
    for language, lines in (("en", pairs.source), ("de", pairs.target)):
        rows = tokenizer.tokenize(list(lines)).to_list()
        (path / f"ids.{language}").write_text("".join(" ".join(map(str, ids)) + "\n" for ids in rows))
    # OpenNMT-tf has its own names for the special tokens, and adds the one for unknown words itself.
    words = ["<blank>", "<s>", "</s>", *range(tokenizer.end_id + 1, tokenizer.vocab_size)]
    (path / "vocabulary.txt").write_text("".join(f"{word}\n" for word in words))
