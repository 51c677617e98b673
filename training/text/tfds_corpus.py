"""Sentence pairs from tensorflow-datasets."""

import contextlib
import difflib
import functools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_transformer.errors import ConfigError

from .parallel_text import Corpus, Shard
from .text_files import Reread

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds

_MAX_RETRIES = 4


def tfds_corpus(name: str, split: str, data_dir: str | os.PathLike[str] | None = None) -> Corpus:
    """Opens a dataset of text pairs, such as "ted_hrlr_translate/pt_to_en", in the dataset's own order.

    The dataset's information says which language is the source. A dataset that is not prepared on disk yet is
    downloaded first. The default directory is that of tensorflow-datasets (`TFDS_DATA_DIR` or
    `~/tensorflow_datasets`).

    Raises:
        ConfigError: There is no such dataset, configuration or split; it does not hold pairs of texts; or it is not
            on disk and could not be downloaded.
    """
    import tensorflow_datasets as tfds

    builder = _builder(name, data_dir)
    texts = [key for key, feature in builder.info.features.items() if isinstance(feature, tfds.features.Text)]
    languages = builder.info.supervised_keys
    if not (languages and len(languages) == 2 and all(key in texts for key in languages)):
        raise ConfigError(
            f"{name} is not a dataset of text pairs: its supervised pair is {languages}, "
            f"its texts are {', '.join(texts) or 'none'}"
        )
    _prepare(builder, name)
    try:
        dataset = builder.as_dataset(split=split, as_supervised=True, shuffle_files=False)
    except Exception as error:  # the parser of splits raises any type
        raise ConfigError(
            f"{name} has no split {split!r}, it has {', '.join(sorted(builder.info.splits))} ({_one_line(error)})"
        ) from error

    source, target = (Reread(functools.partial(_texts, dataset, side)) for side in (0, 1))
    corpus_name = f"{name}, {split}"
    return Corpus(corpus_name, [Shard(source, target, corpus_name, corpus_name)])


def _texts(dataset: "tf.data.Dataset", side: int) -> Iterator[str]:
    for texts in dataset.map(lambda *pair: pair[side]).batch(1024).as_numpy_iterator():
        yield from (text.decode("utf-8") for text in texts)


def _builder(name: str, data_dir: str | os.PathLike[str] | None) -> "tfds.core.DatasetBuilder":
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir)
    except Exception as error:  # a dataset's own code may raise any type
        dataset = name.partition("/")[0].partition(":")[0]
        known = tfds.list_builders(with_community_datasets=False)
        if dataset not in known:
            nearest = difflib.get_close_matches(dataset, known, cutoff=0.5)
            exists = f"the nearest names are {', '.join(nearest)}" if nearest else "no name is similar"
            raise ConfigError(f"there is no dataset {dataset!r}; {exists}") from error
        configs = ", ".join(tfds.builder_cls(dataset).builder_configs) or "none"
        raise ConfigError(
            f"cannot open the dataset {name!r}, the configurations of {dataset} are {configs} ({_one_line(error)})"
        ) from error


def _prepare(builder: "tfds.core.DatasetBuilder", name: str) -> None:
    from tensorflow_datasets.core.download import downloader

    # Its ten retries with doubling pauses make a machine without a network wait for 205 s, and no option changes them.
    # A test counts the retries, in case a release of tensorflow-datasets renames this.
    downloader.MAX_RETRIES = _MAX_RETRIES
    try:
        # tensorflow-datasets prints progress on standard output, which is for the results of a command.
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except Exception as error:  # a dataset's own code may raise any type
        raise ConfigError(
            f"{name} is not on disk in {builder.data_dir} and could not be downloaded: {_one_line(error)}"
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
