"""The task of the decoding benchmark: sentences and models as files, the same for every contender.

Contenders that run in another environment read the files with JSON only.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.processes import Report

if TYPE_CHECKING:
    from keras_transformer.training.text.corpus import SentencePairs

    from keras_transformer.config.precision import Precision
    from keras_transformer.translation import Translator

BEAM_SIZE = 4
REQUEST_SIZE = 32

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# A translation and its log probability.
ScoredText = Sequence[Any]


class DecodingTask:
    """A directory with the text, the longest sentence first, and with a trained model in the form of each engine.

        saved_models/               for each precision and beam size, as `keras-transformer export` writes them
        ctranslate2/1               the same weights for CTranslate2, and the tokenizer's files
        ids.en, ids.de              the text as token ids, for contenders with random weights
        vocabulary.txt              the vocabulary of the token ids
        task.json                   texts, sizes and counts
        answers/                    the translations of contenders that translate text, from their last run

    SavedModels have the search settings of the model's directory, but a length penalty of 0, with which the formulas of
    all engines agree. CTranslate2 may write translations of up to `max_length` tokens. No translation of a trained
    model should be as long as an engine's limit.

    Args:
        path: str or path of the directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """`sources`, `references`, `num_steps` of each request; the model's `sizes`, `vocab_size`, `max_length`,
        `forbidden_tokens`."""
        return json.loads((self.path / "task.json").read_text(encoding="utf-8"))

    @property
    def mean_steps(self) -> int:
        """The mean number of steps of a request, rounded."""
        return round(statistics.mean(self.facts["num_steps"]))

    def saved_model(self, precision: str, beam_size: int) -> pathlib.Path:
        """Returns the path of a SavedModel."""
        return self.path / "saved_models" / f"{precision}-beam-{beam_size}" / "1"

    def requests(self, size: int = REQUEST_SIZE, every: int = 1) -> list[list[str]]:
        """Returns the sources in requests.

        Args:
            size: int. Sentences in a request. Defaults to 32.
            every: int. Only every n-th sentence is used. Defaults to 1: all.
        """
        return split_into_requests(self.facts["sources"][::every], size)

    def token_id_requests(self) -> list[list[list[int]]]:
        """Returns the sources in requests of the default size, as token ids without end tokens."""
        lines = (self.path / "ids.en").read_text().splitlines()
        return split_into_requests([[int(word) for word in line.split()] for line in lines], REQUEST_SIZE)

    def measure(
        self,
        translate: Callable[[list[str]], tuple[Iterable[str], Iterable[float]]],
        versions: Mapping[str, str],
        options: argparse.Namespace,
        warmup_every: int = 1,
    ) -> Report:
        """Translates all requests after a warm-up, and reports the speed.

        Args:
            translate: Callable. Takes a request, and returns its translations and their scores.
            versions: Mapping from packages to versions.
            options: the options of `make_parser`.
            warmup_every: int. Only every n-th request is translated in the warm-up. Defaults to 1: all.
        """
        requests = self.requests(options.request_size, options.every)
        send_requests(translate, requests[::warmup_every], options.at_once)
        answers, seconds = send_requests(translate, requests, options.at_once)
        translations: list[str] = []
        scores: list[float] = []
        for request_translations, request_scores in answers:
            translations += request_translations
            scores += request_scores
        if options.answers:
            self.write_answers(options.answers, translations, scores)
        bleu = corpus_bleu(translations, self.facts["references"][:: options.every])
        return make_report(len(translations), seconds, versions, bleu=bleu)

    def write_answers(self, name: str, translations: Sequence[str], scores: Sequence[float]) -> None:
        """Writes the translations of all sentences and their scores under a name."""
        path = self._answers_path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(list(zip(translations, scores, strict=True))))

    def read_answers(self, name: str) -> list[ScoredText] | None:
        """Reads what `write_answers` wrote: a list of `[translation, score]`, None if there is none of that name."""
        path = self._answers_path(name)
        return json.loads(path.read_text()) if path.exists() else None

    def _answers_path(self, name: str) -> pathlib.Path:
        return self.path / "answers" / f"{name}.json"


def split_into_requests(items: list[Item], size: int) -> list[list[Item]]:
    """Divides items into requests of a size; the last one may be smaller."""
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def send_requests(
    answer: Callable[[Item], Answer], requests: Iterable[Item], at_once: int = 1
) -> tuple[list[Answer], float]:
    """Has requests answered, and measures the time.

    Args:
        answer: Callable. Answers a request.
        requests: the requests.
        at_once: int. Number of requests that are answered at the same time, by threads. Defaults to 1.

    Returns:
        The answers in the order of the requests, and the seconds that all of them took together.
    """
    if at_once == 1:
        begin = time.perf_counter()
        answers = [answer(request) for request in requests]
        return answers, time.perf_counter() - begin
    with concurrent.futures.ThreadPoolExecutor(at_once) as clients:
        begin = time.perf_counter()
        answers = list(clients.map(answer, requests))
        return answers, time.perf_counter() - begin


def make_report(num_sentences: int, seconds: float, versions: Mapping[str, str], **more: Any) -> Report:
    """Makes the report of a contender.

    Args:
        num_sentences: int. How many sentences were translated.
        seconds: float. How long that took.
        versions: Mapping from packages to versions.
        more: what else the report contains.
    """
    speed = num_sentences / seconds
    return {"value": speed, "sentences": num_sentences, "seconds": seconds, "versions": dict(versions), **more}


def corpus_bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """Returns sacreBLEU's BLEU."""
    import sacrebleu

    return sacrebleu.corpus_bleu(translations, [references]).score


def make_parser(documentation: str | None) -> argparse.ArgumentParser:
    """Makes the parser of a contender that translates text.

    Args:
        documentation: str. Docstring of the module, whose first line is the description.
    """
    parser = argparse.ArgumentParser(description=(documentation or "").partition("\n")[0])
    parser.add_argument("task", metavar="TASK", help="the task's directory")
    parser.add_argument("--beam-size", type=int, default=BEAM_SIZE, metavar="N")
    parser.add_argument("--request-size", type=int, default=REQUEST_SIZE, metavar="N", help="sentences in a request")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="translate only every N-th sentence")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="requests sent at the same time")
    parser.add_argument("--answers", metavar="NAME", help="save translations and scores under this name")
    return parser


def prepare(
    path: str | os.PathLike[str],
    model_dir: str | os.PathLike[str],
    pairs: "SentencePairs",
    precisions: Sequence["Precision"],
    length_penalty: float | None = 0.0,
) -> DecodingTask:
    """Writes a task.

    Args:
        path: str or path of the directory, which is made if it does not exist.
        model_dir: str or path of a trained model's directory.
        pairs: SentencePairs to translate.
        precisions: list of "float32" or "bfloat16". What to export SavedModels in. The model in the first precision
            determines how many steps a request takes.
        length_penalty: float or None. That of all searches; None is the model's own. Defaults to 0, the one value that
            means the same to all engines.

    Raises:
        ConfigError: `model_dir` is not the directory of a trained model.
    """
    from keras_transformer.export.ctranslate2 import export_ctranslate2
    from keras_transformer.training.text.corpus import SentencePairs

    from benchmarks.training_task import write_token_ids

    task = DecodingTask(path)
    translator = _export_saved_models(task, model_dir, precisions, length_penalty)
    export_ctranslate2(translator, task.path / "ctranslate2")

    sources, targets = list(pairs.source), list(pairs.target)
    num_tokens = translator.num_tokens(sources)
    order = sorted(range(len(sources)), key=lambda i: -num_tokens[i])
    ordered = SentencePairs([sources[i] for i in order], [targets[i] for i in order], pairs.name)
    write_token_ids(task.path, ordered, translator.tokenizers.target)
    config = translator.model.config
    facts = {
        "sizes": {
            "num_layers": config.depths,
            **{name: getattr(config, name) for name in ("d_model", "d_ff", "num_heads", "dropout")},
        },
        "vocab_size": translator.tokenizers.target.vocab_size,
        "max_length": config.max_length,
        "forbidden_tokens": translator.decoding.forbidden_tokens,
        "sources": ordered.source,
        "references": ordered.target,
        # The tokens of the longest translation. Beam search may take more steps; the engines with random weights are
        # not made to.
        "num_steps": [
            int(max(translator.num_tokens(translator(request))))
            for request in split_into_requests(list(ordered.source), REQUEST_SIZE)
        ],
    }
    (task.path / "task.json").write_text(json.dumps(facts), encoding="utf-8")
    return task


def _export_saved_models(
    task: DecodingTask,
    model_dir: str | os.PathLike[str],
    precisions: Sequence["Precision"],
    length_penalty: float | None,
) -> "Translator":
    """Returns the translator in the first precision, with a beam."""
    from keras_transformer.export.servable import export_servable

    from keras_transformer.model_dir.directory import ModelDir
    from keras_transformer.translation import Translator

    decoding = ModelDir(model_dir).read_config().decoding
    if length_penalty is not None:
        decoding = dataclasses.replace(decoding, length_penalty=length_penalty)
    translators = {
        (precision, beam_size): Translator.load(
            model_dir, dataclasses.replace(decoding, beam_size=beam_size), precision
        )
        for precision in precisions
        for beam_size in (1, BEAM_SIZE)
    }
    for (precision, beam_size), translator in translators.items():
        export_servable(translator, task.saved_model(precision, beam_size).parent)
    return translators[precisions[0], BEAM_SIZE]


def agreement(first: Sequence[ScoredText], second: Sequence[ScoredText]) -> dict[str, Any]:
    """Compares the translations of two engines that search the same model.

    Args:
        first: list of `[translation, log probability]`, one for each sentence.
        second: list of the same length.

    Returns:
        dict of
            "sentences": int, the number of sentences.
            "equal": int, how many translations are equal.
            "score_difference": float or None, the largest difference between the scores of equal translations.
            "others": for each pair of different translations, the two scores.

    Raises:
        ValueError: The lists differ in length.
    """
    pairs = list(zip(first, second, strict=True))
    differences = [abs(a[1] - b[1]) for a, b in pairs if a[0] == b[0]]
    return {
        "sentences": len(pairs),
        "equal": len(differences),
        "score_difference": max(differences, default=None),
        "others": [[a[1], b[1]] for a, b in pairs if a[0] != b[0]],
    }
