"""What every contender of the training comparison is given: the same text, in the same batches, as files.

Contenders that cannot import this package's dependencies read them with NumPy and JSON alone.
"""

import functools
import json
import pathlib

import numpy as np


class TrainingTask:
    """A directory with the text, and one epoch of batches in the order and the shapes of `keras-transformer train`.

        train.en, train.de, valid.en, valid.de   for those that read text
        recipe.yaml                              for `keras-transformer train`, save for its steps
        batches.npz                              for those that take token ids
        ids.en, ids.de, vocabulary.txt           the token ids as words, for those that make batches themselves
        task.json                                sizes and counts

    Rows without a sentence, which fill a bucket's last batch there, are left out of the batches here.

    Args:
        path: the directory.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)

    @functools.cached_property
    def facts(self):
        """`sizes` of the model, `vocab_size`, `max_length`, `tokens_per_batch`, and the `steps` and tokens of an epoch."""
        return json.loads((self.path / "task.json").read_text())

    @functools.cached_property
    def batches(self):
        """The epoch: a list of `(source, target, labels)`, int32 and 0 where there is no token."""
        with np.load(self.path / "batches.npz") as arrays:
            return [
                tuple(arrays[f"{name}_{i}"] for name in ("source", "target", "labels"))
                for i in range(self.facts["steps"])
            ]

    def batches_by_width(self):
        """The batches of every shape, a last one with fewer rows among them."""
        found = {}
        for batch in self.batches:
            found.setdefault((batch[0].shape[1], batch[1].shape[1]), []).append(batch)
        return found

    def warmup(self):
        """One batch of every shape, to be trained on before time is taken."""
        return [batches[0] for batches in self.batches_by_width().values()]

    def report(self, seconds, versions, **more):
        """The report of a contender that trained on the epoch in so many seconds."""
        speed = self.facts["target_tokens"] / seconds
        return {"value": speed, "seconds": seconds, "versions": versions, **more}


def count_tokens(rows):
    """The tokens of padded rows."""
    return int(np.count_nonzero(rows))


def prepare(path, train_pairs, valid_pairs, vocab_size, sizes, tokens_per_batch):
    """Writes a task.

    Args:
        path: the directory, made if it does not stand.
        train_pairs, valid_pairs: `SentencePairs`.
        vocab_size: of the vocabulary that is learned from `train_pairs`.
        sizes: of the model, as `TransformerConfig` names them.
        tokens_per_batch: as a recipe has it.

    Returns:
        The `TrainingTask`.
    """
    import yaml

    from benchmarks.model import learn_vocabulary
    from benchmarks.text import write_pairs
    from keras_transformer.training.batches import steps_per_epoch, training_dataset
    from keras_transformer.training.recipe import load_recipe
    from keras_transformer.training.encoded_pairs import encode

    task = TrainingTask(path)
    task.path.mkdir(parents=True, exist_ok=True)
    write_pairs(train_pairs, task.path / "train")
    write_pairs(valid_pairs, task.path / "valid")
    sections = {
        "model": dict(sizes),
        "tokenizer": {"kind": "bpe", "vocab_size": vocab_size},
        "training": {"tokens_per_batch": tokens_per_batch, "keep_checkpoints": 1, "average_last": 0},
    }
    recipe_path = task.path / "recipe.yaml"
    recipe_path.write_text(yaml.safe_dump(sections))
    recipe = load_recipe(str(recipe_path))

    tokenizer = learn_vocabulary(train_pairs, vocab_size)
    (task.path / "token_ids").mkdir()
    encoded = encode(train_pairs, tokenizer, recipe.model.max_length, task.path / "token_ids")
    batching = dict(tokens_per_batch=tokens_per_batch, num_buckets=recipe.training.num_buckets)
    steps = steps_per_epoch(encoded, **batching)
    # The second epoch: in the first, `keras-transformer train` compiles.
    dataset = training_dataset(
        encoded, seed=recipe.training.seed, start_id=tokenizer.start_id, first_step=steps, **batching
    )
    arrays, tokens, positions = {}, {"source": 0, "target": 0}, 0
    for i, (inputs, labels) in enumerate(dataset.take(steps).as_numpy_iterator()):
        real = labels.any(axis=1)
        positions += inputs["source"].size + labels.size
        tokens["source"] += count_tokens(inputs["source"])
        tokens["target"] += count_tokens(labels)
        arrays[f"source_{i}"] = inputs["source"][real]
        arrays[f"target_{i}"] = inputs["target"][real]
        arrays[f"labels_{i}"] = labels[real]
    np.savez(task.path / "batches.npz", **arrays)
    write_ids(task.path, train_pairs, tokenizer)
    facts = {
        "sizes": dict(sizes),
        "vocab_size": tokenizer.vocab_size,
        "tokens_per_batch": tokens_per_batch,
        "max_length": recipe.model.max_length,
        "pairs": len(encoded),
        "steps": steps,
        "source_tokens": tokens["source"],
        "target_tokens": tokens["target"],
        "padding": 1 - sum(tokens.values()) / positions,
    }
    (task.path / "task.json").write_text(json.dumps(facts))
    return task


def write_ids(path, pairs, tokenizer):
    for language, lines in (("en", pairs.source), ("de", pairs.target)):
        rows = tokenizer.tokenize(lines).to_list()
        (path / f"ids.{language}").write_text("".join(" ".join(map(str, ids)) + "\n" for ids in rows))
    # OpenNMT-tf wants its own names for the special tokens, and adds the unknown one itself.
    words = ["<blank>", "<s>", "</s>", *range(tokenizer.end_id + 1, tokenizer.vocab_size)]
    (path / "vocabulary.txt").write_text("".join(f"{word}\n" for word in words))
