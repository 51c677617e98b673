"""The task of the decoding benchmark: sentences and models as files, the same for every contender.

Contenders that run in another environment read the files with JSON only.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.processes import Report

if TYPE_CHECKING:
    from keras_transformer.config.values import Precision
    from keras_transformer.training.text.corpus import SentencePairs
    from keras_transformer.translation import Translator

BEAM_SIZE = 4
REQUEST_SIZE = 32

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class DecodingTask:
    """A directory with the text, and with a trained model in the form of each engine.

        saved_models/    for each precision and beam size, as `keras-transformer export` writes
                         them; once more with the shortlist if the model has one; each in
                         float32 once more with compiled searches, if asked for
        ctranslate2/1    the same weights for CTranslate2, and the tokenizer's files
        task.json        texts, the longest sentence first, and limits
        answers/         the translations of contenders, from their last run

    Args:
        path: str or path of the directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """`sources` and `references`; the model's `max_length` and `forbidden_tokens`."""
        return json.loads((self.path / "task.json").read_text(encoding="utf-8"))

    def saved_model(
        self, precision: str, beam_size: int, shortlist: bool = False, compiled: bool = False
    ) -> pathlib.Path:
        """Returns the path of a SavedModel."""
        name = f"{precision}-beam-{beam_size}"
        if shortlist:
            name += "-shortlist"
        if compiled:
            name += "-compiled"
        return self.path / "saved_models" / name / "1"

    def requests(self, size: int = REQUEST_SIZE, every: int = 1) -> list[list[str]]:
        """Returns every n-th source in requests of a size; the last one may be smaller."""
        sources = self.facts["sources"][::every]
        return [sources[begin : begin + size] for begin in range(0, len(sources), size)]

    def measure(
        self,
        translate: Callable[[list[str]], tuple[Iterable[str], Iterable[float]]],
        versions: Mapping[str, str],
        options: argparse.Namespace,
    ) -> Report:
        """Translates all requests after a warm-up, and reports the speed.

        `translate` takes a request and returns its translations and scores; `options` are those of
        `make_parser`.
        """
        import sacrebleu

        requests = self.requests(options.request_size, options.every)
        send_requests(translate, requests, options.at_once)
        answers, seconds = send_requests(translate, requests, options.at_once)
        translations: list[str] = []
        scores: list[float] = []
        for some_translations, some_scores in answers:
            translations += some_translations
            scores += some_scores
        if options.answers:
            self.write_answers(options.answers, translations, scores)
        references = self.facts["references"][:: options.every]
        bleu = sacrebleu.corpus_bleu(translations, [references]).score
        return {**make_report(len(translations), seconds, versions), "bleu": bleu}

    def write_answers(
        self, name: str, translations: Sequence[str], scores: Sequence[float]
    ) -> None:
        """Writes the translations of all sentences and their scores under a name."""
        path = self._answers_path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(list(zip(translations, scores, strict=True))))

    def read_answers(self, name: str) -> list[Any] | None:
        """Returns the answers under a name, a list of `[translation, score]`, or None."""
        path = self._answers_path(name)
        return json.loads(path.read_text()) if path.exists() else None

    def _answers_path(self, name: str) -> pathlib.Path:
        return self.path / "answers" / f"{name}.json"


def send_requests(
    answer: Callable[[Item], Answer], requests: Iterable[Item], at_once: int = 1
) -> tuple[list[Answer], float]:
    """Has requests answered, several at a time by threads if `at_once` is more than 1.

    Returns:
        The answers in the order of the requests, and the seconds that all of them took together.
    """
    with concurrent.futures.ThreadPoolExecutor(at_once) as clients:
        begin = time.perf_counter()
        answers = list((clients.map if at_once > 1 else map)(answer, requests))
        return answers, time.perf_counter() - begin


def make_report(num_sentences: int, seconds: float, versions: Mapping[str, str]) -> Report:
    """Makes the report of a contender: `value` is its speed in sentences per second."""
    return {
        "value": num_sentences / seconds,
        "sentences": num_sentences,
        "seconds": seconds,
        "versions": versions,
    }


def make_parser(documentation: str | None) -> argparse.ArgumentParser:
    """Makes the parser of a contender; the first line of its docstring is the description."""
    parser = argparse.ArgumentParser(
        description=(documentation or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("task", metavar="TASK", help="the task's directory")
    parser.add_argument("--beam-size", type=int, default=BEAM_SIZE, metavar="N")
    parser.add_argument(
        "--request-size", type=int, default=REQUEST_SIZE, metavar="N", help="sentences in a request"
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="translate only every N-th sentence"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="requests sent at the same time"
    )
    parser.add_argument(
        "--answers", metavar="NAME", help="save translations and scores under this name"
    )
    return parser


def prepare(
    path: str | os.PathLike[str],
    model_dir: str | os.PathLike[str],
    pairs: "SentencePairs",
    precisions: Sequence["Precision"] = ("float32",),
    beam_sizes: Sequence[int] = (BEAM_SIZE,),
    length_penalty: float | None = None,
    compiled: bool = False,
) -> tuple[DecodingTask, "Translator"]:
    """Writes a task without the model of CTranslate2.

    Args:
        path: str or path of the directory, which is made if it does not exist.
        model_dir: str or path of a trained model's directory.
        pairs: SentencePairs to translate.
        precisions: list of "float32" or "bfloat16". What to export SavedModels in. Defaults to
            float32.
        beam_sizes: list of int. What to export SavedModels for. Defaults to 4.
        length_penalty: float or None. That of all searches. Defaults to None, the model's own.
        compiled: bool. Whether to export SavedModels that compile their searches too, in float32.
            Defaults to False.

    Returns:
        The task, and a translator in the first precision, with the model's shortlist if it has one.

    Raises:
        ConfigError: `model_dir` is not the directory of a trained model.
    """
    from keras_transformer.export.servable import export_servable
    from keras_transformer.model_dir.directory import ModelDir
    from keras_transformer.translation import Translator
    from keras_transformer.translation.shapes import SearchShapes

    model_dir = ModelDir(model_dir)
    decoding = model_dir.read_config().decoding
    if length_penalty is not None:
        decoding = dataclasses.replace(decoding, length_penalty=length_penalty)
    shortlists = (False, True) if model_dir.shortlist_path.is_file() else (False,)
    task = DecodingTask(path)
    task.path.mkdir(parents=True, exist_ok=True)
    translators = {}
    for case in itertools.product(precisions, beam_sizes, shortlists):
        precision, beam_size, shortlist = case
        decoding = dataclasses.replace(decoding, beam_size=beam_size)
        translator = Translator.load(model_dir, decoding, precision, shortlist=shortlist)
        output = task.saved_model(*case).parent
        export_servable(translator, output, signatures=["serving_default"])
        if compiled and precision == "float32":
            output = task.saved_model(*case, compiled=True).parent
            export_servable(
                translator,
                output,
                signatures=["serving_default"],
                verified=False,
                shapes=SearchShapes(),
            )
        translators[case] = translator

    translator = translators[precisions[0], beam_sizes[0], shortlists[-1]]
    num_tokens = translator.num_tokens(list(pairs.source))
    sentences = zip(num_tokens, pairs.source, pairs.target, strict=True)
    longest_first = sorted(sentences, key=lambda sentence: -sentence[0])
    facts = {
        "max_length": translator.model.config.max_length,
        "forbidden_tokens": translator.decoding.forbidden_tokens,
        "sources": [source for _, source, _ in longest_first],
        "references": [target for _, _, target in longest_first],
    }
    (task.path / "task.json").write_text(json.dumps(facts), encoding="utf-8")
    return task, translator
