"""What every contender of the decoding comparison is given: the same sentences, in the same requests, as files.

Contenders that cannot import this package's dependencies read them with JSON alone.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import pathlib
import statistics
import time

BEAM_SIZE = 4
REQUEST_SIZE = 32


class DecodingTask:
    """A directory with the text, the longest sentence first, and the trained model in each engine's form.

        saved_models/               for each precision and beam size, as `keras-transformer export` writes them
        ctranslate2/1               the same weights for CTranslate2, and the tokenizer's file
        ids.en, vocabulary.txt      token ids as words, for those whose weights are random
        task.json                   texts, sizes and counts
        answers/                    what those who translate text answered last

    Nobody's search is cut short: all may write translations of `max_length` tokens. A length penalty is set to 0,
    where the formulas of all engines agree.

    Args:
        path: the directory.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)

    @functools.cached_property
    def facts(self):
        """`sources`, `references`, each request's `num_steps`; the model's `sizes`, `vocab_size`, `max_length`."""
        return json.loads((self.path / "task.json").read_text(encoding="utf-8"))

    @property
    def mean_steps(self):
        """The steps of an average request, a whole number."""
        return round(statistics.mean(self.facts["num_steps"]))

    def saved_model(self, precision, beam_size):
        return self.path / "saved_models" / f"{precision}-beam-{beam_size}" / "1"

    def requests(self, size=REQUEST_SIZE, every=1):
        """Every so manieth source, in requests of one size, but for the last."""
        return in_requests(self.facts["sources"][::every], size)

    def id_requests(self):
        """The requests as lists of token ids, without end tokens."""
        lines = (self.path / "ids.en").read_text().splitlines()
        return in_requests([[int(word) for word in line.split()] for line in lines], REQUEST_SIZE)

    def measure(self, translate, versions, options, warmup_every=1):
        """Translates all requests after a warm-up, and reports how fast.

        Args:
            translate: takes a request, a list of strings; returns their translations and scores.
            versions: of the packages.
            options: what `parser` parsed.
            warmup_every: the warm-up translates every so manieth request.

        Returns:
            The report.
        """
        requests = self.requests(options.request_size, options.every)
        answer_all(translate, requests[::warmup_every], options.at_once)
        answers, seconds = answer_all(translate, requests, options.at_once)
        translations = [text for texts, _ in answers for text in texts]
        if options.answers:
            scores = [score for _, scores in answers for score in scores]
            self.write_answers(options.answers, translations, scores)
        bleu = corpus_bleu(translations, self.facts["references"][:: options.every])
        return report(len(translations), seconds, versions, bleu=bleu)

    def write_answers(self, name, translations, scores):
        path = self._answers_path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(list(zip(translations, scores, strict=True))))

    def read_answers(self, name):
        """Lists of `[translation, score]`; None if there are no answers of that name."""
        path = self._answers_path(name)
        return json.loads(path.read_text()) if path.exists() else None

    def _answers_path(self, name):
        return self.path / "answers" / f"{name}.json"


def in_requests(items, size):
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


def answer_all(answer, requests, at_once=1):
    """Sends requests, the next as soon as fewer than `at_once` are being answered.

    Returns:
        The answers in the requests' order, and the seconds that all took.
    """
    if at_once == 1:
        begin = time.perf_counter()
        answers = [answer(request) for request in requests]
        return answers, time.perf_counter() - begin
    with concurrent.futures.ThreadPoolExecutor(at_once) as clients:
        begin = time.perf_counter()
        answers = list(clients.map(answer, requests))
        return answers, time.perf_counter() - begin


def report(num_sentences, seconds, versions, **more):
    """The report of a contender that translated so many sentences in so many seconds."""
    value = num_sentences / seconds
    return {"value": value, "sentences": num_sentences, "seconds": seconds, "versions": versions, **more}


def corpus_bleu(translations, references):
    import sacrebleu

    return sacrebleu.corpus_bleu(translations, [references]).score


def parser(description):
    """A parser with the options of those who translate text."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("task")
    parser.add_argument("--beam-size", type=int, default=BEAM_SIZE)
    parser.add_argument("--request-size", type=int, default=REQUEST_SIZE)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="translate every Nth sentence")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="requests that are sent side by side")
    parser.add_argument("--answers", metavar="NAME", help="keep translations and scores under this name")
    return parser


def prepare(path, model_dir, pairs, loaders):
    """Writes a task.

    Args:
        path: the directory, made if it does not stand.
        model_dir: of a trained model.
        pairs: the `SentencePairs` to translate.
        loaders: from each precision to a function that loads its translator, as `Translator.load` does. The first
            one's translations say how many steps a request takes.

    Returns:
        The `DecodingTask`.
    """
    from benchmarks.training_task import write_ids
    from keras_transformer.config import DecodingConfig
    from keras_transformer.export.ctranslate2 import export_ctranslate2
    from keras_transformer.export.servable import export_servable
    from keras_transformer.model_dir import ModelDir
    from keras_transformer.training.corpus import SentencePairs

    config, *_ = ModelDir(model_dir).read_config()
    task = DecodingTask(path)
    searches = {
        beam_size: DecodingConfig(beam_size, length_penalty=0.0, max_extra_tokens=config.max_length)
        for beam_size in (1, BEAM_SIZE)
    }
    translators = {
        (precision, beam_size): load(model_dir, search)
        for precision, load in loaders.items()
        for beam_size, search in searches.items()
    }
    for key, translator in translators.items():
        export_servable(translator, task.saved_model(*key).parent)
    translator = next(translator for (_, beam_size), translator in translators.items() if beam_size == BEAM_SIZE)
    export_ctranslate2(translator, task.path / "ctranslate2")

    num_tokens = translator.num_tokens(pairs.source)
    order = sorted(range(len(pairs)), key=lambda i: -num_tokens[i])
    ordered = SentencePairs([pairs.source[i] for i in order], [pairs.target[i] for i in order], pairs.name)
    write_ids(task.path, ordered, translator.tokenizer)
    # As many as the longest translation has tokens: a search may look further, which none of the others is made to.
    num_steps = [
        int(max(translator.num_tokens(translator(request))))
        for request in in_requests(ordered.source, REQUEST_SIZE)
    ]
    sizes = dataclasses.asdict(config)
    facts = {
        "sizes": {name: sizes[name] for name in ("num_layers", "d_model", "d_ff", "num_heads", "dropout")},
        "vocab_size": translator.tokenizer.vocab_size,
        "max_length": config.max_length,
        "sources": ordered.source,
        "references": ordered.target,
        "num_steps": num_steps,
    }
    (task.path / "task.json").write_text(json.dumps(facts), encoding="utf-8")
    return task


def agreement(ours, theirs):
    """How far two engines agree that search the same model.

    Args:
        ours, theirs: `[translation, score]` of every sentence; scores are log probabilities.

    Returns:
        A dict: `sentences`; `equal`, how many translations are; `score_difference`, the largest where they are, or
        None; `others`, where they are not: `[our score, their score]` of each.
    """
    pairs = list(zip(ours, theirs, strict=True))
    differences = [abs(a[1] - b[1]) for a, b in pairs if a[0] == b[0]]
    return {
        "sentences": len(pairs),
        "equal": len(differences),
        "score_difference": max(differences, default=None),
        "others": [[a[1], b[1]] for a, b in pairs if a[0] != b[0]],
    }
