"""Opens translation datasets of tensorflow-datasets."""

import contextlib
import difflib
import functools
import sys
from collections.abc import Iterator

from ..errors import ConfigError
from .corpora import Corpus, Shard
from .lines import Path, Reread


def tfds_corpus(name: str, split: str, data_dir: Path | None = None) -> Corpus:
    """Opens a dataset of text pairs in tensorflow-datasets, such as "ted_hrlr_translate/pt_to_en".

    Pairs are in the order of the dataset, and its supervised keys define which language is the
    source. If the dataset is not on disk, it is downloaded first. The default directory is the
    default of tensorflow-datasets (`TFDS_DATA_DIR` or `~/tensorflow_datasets`).

    Raises:
        ConfigError: The dataset, configuration or split does not exist; the dataset does not
            contain pairs of texts; or it is not on disk and could not be downloaded.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import downloader

    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except Exception as error:  # a dataset's own code may raise any type
        dataset = name.partition("/")[0].partition(":")[0]
        known = tfds.list_builders(with_community_datasets=False)
        if dataset not in known:
            nearest = difflib.get_close_matches(dataset, known, cutoff=0.5)
            if nearest:
                hint = f"the nearest names are {', '.join(nearest)}"
            else:
                hint = "no name is similar"
            raise ConfigError(f"there is no dataset {dataset!r}; {hint}") from error
        configs = ", ".join(tfds.builder_cls(dataset).builder_configs) or "none"
        raise ConfigError(
            f"cannot open the dataset {name!r}, the configurations of {dataset} are {configs} "
            f"({_one_line(error)})"
        ) from error
    texts = [
        key
        for key, feature in builder.info.features.items()
        if isinstance(feature, tfds.features.Text)
    ]
    languages = builder.info.supervised_keys
    if not (languages and len(languages) == 2 and all(key in texts for key in languages)):
        raise ConfigError(
            f"{name} is not a dataset of text pairs: its supervised pair is {languages}, "
            f"its texts are {', '.join(texts) or 'none'}"
        )
    # Without a network, ten retries with doubling pauses would take 205 s, and no option changes
    # them. A test counts the retries, in case a release of tensorflow-datasets renames this.
    downloader.MAX_RETRIES = 4
    try:
        # tensorflow-datasets prints its progress on standard output, which is for results.
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except Exception as error:
        raise ConfigError(
            f"{name} is not on disk in {builder.data_dir} and could not be downloaded: "
            f"{_one_line(error)}"
        ) from error
    try:
        examples = builder.as_dataset(split=split, as_supervised=True, shuffle_files=False)
    except Exception as error:  # the parser of splits raises any type
        raise ConfigError(
            f"{name} has no split {split!r}, it has {', '.join(sorted(builder.info.splits))} "
            f"({_one_line(error)})"
        ) from error

    def read(side: int) -> Iterator[str]:
        for texts in examples.map(lambda *pair: pair[side]).batch(1024).as_numpy_iterator():
            yield from (text.decode("utf-8") for text in texts)

    source = Reread(functools.partial(read, 0))
    target = Reread(functools.partial(read, 1))
    corpus_name = f"{name}, {split}"
    return Corpus(corpus_name, [Shard(source, target, corpus_name, corpus_name)])


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
