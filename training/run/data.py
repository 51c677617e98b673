"""What the text becomes before training: tokenizers, and batches of token ids."""

import logging
import pathlib
from typing import NamedTuple, cast

from keras_transformer.config import Config, TrainingConfig
from keras_transformer.config.rules import require
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import naming_errors
from keras_transformer.runtime.progress import counted
from keras_transformer.tokenizers import SentencePieceTokenizer, TokenizerPair, load_tokenizers, tokenizer_filenames
from keras_transformer.tokenizers.placeholders import SpanFinder, span_finder

from ..alignment.lexicon import learn_lexicon
from ..batches.augmentation import Augmentation, SubwordDropout, TermAnnotation
from ..batches.encoded_pairs import EncodedPairs, encode
from ..batches.plan import BatchPlan, plan_batches
from ..batches.token_links import align_encoded
from ..batches.vocabulary import learn_tokenizers
from ..text.corpus import SentencePairs
from ..text.fingerprint import Fingerprint
from .workers import Workers

_log = logging.getLogger(__name__)

# A vocabulary leaves out one character in 10,000 of the text that it is learned from.
_NOTABLE_SHARE = 0.01


class TrainingData(NamedTuple):
    """What the text becomes before training: tokenizers, and the plans of the batches."""

    tokenizers: TokenizerPair
    train: BatchPlan
    valid: BatchPlan

    @property
    def fingerprint(self) -> Fingerprint:
        return {"train": self.train.pairs.fingerprint, "valid": self.valid.pairs.fingerprint}


def augmentation_of(config: Config) -> Augmentation | None:
    """The other shapes in which the model sees the training text, or None."""
    if not config.data.augment:
        return None
    return Augmentation(config.data.augment, config.training.seed, SpanFinder(config.decoding.keep or ()))


def tokenizers_of(
    config: Config,
    train_pairs: SentencePairs,
    model_dir: ModelDir,
    init_from: ModelDir | None,
    workers: Workers,
    directory: pathlib.Path,
) -> TokenizerPair:
    """Loads the tokenizers of an earlier run, or learns them; the other workers get those of the chief."""
    if not workers.is_chief:
        for name in tokenizer_filenames(config.tokenizer):
            path, content = directory / name, workers.from_chief(b"")
            with naming_errors(path):
                path.write_bytes(content)
        return load_tokenizers(directory, config.tokenizer)
    if model_dir.is_trained():
        tokenizers = load_tokenizers(model_dir.path, config.tokenizer)
    elif init_from is not None:
        tokenizers = load_tokenizers(init_from.path, config.tokenizer)
    else:
        tokenizers = learn_tokenizers(train_pairs, config.tokenizer, config.data.terms > 0)
    for tokenizer in tokenizers.files().values():
        workers.from_chief(tokenizer.file_content)
    return tokenizers


def prepare_data(
    config: Config,
    train_pairs: SentencePairs,
    valid_pairs: SentencePairs,
    tokenizers: TokenizerPair,
    augmentation: Augmentation | None,
    num_parts: int,
    directory: pathlib.Path,
) -> TrainingData:
    """Tokenizes the texts, of which the training text is in a file of the directory, and plans their batches."""
    training, max_length = config.training, config.model.max_length
    samplers = _samplers(training, tokenizers) if training.subword_dropout else tokenizers
    is_drawn_anew = training.subword_dropout or augmentation or config.data.terms
    times = training.subword_samples if is_drawn_anew else 1
    spans = span_finder(config.decoding, tokenizers)
    terms = _term_annotation(config, train_pairs, tokenizers) if config.data.terms else None
    train_ids = encode(train_pairs, samplers, max_length, directory / "train", times, spans, augmentation, terms)
    if training.guided_alignment:
        train_ids = align_encoded(train_ids)
    valid_ids = encode(valid_pairs, tokenizers, max_length, directory / "valid", spans=spans)
    _report_pairs("training text", train_ids, tokenizers)
    _report_pairs("validation text", valid_ids, tokenizers)
    sizes = dict(
        tokens_per_batch=training.tokens_per_batch,
        num_buckets=training.num_buckets,
        num_parts=num_parts,
    )
    return TrainingData(tokenizers, plan_batches(train_ids, **sizes), plan_batches(valid_ids, **sizes))


def _samplers(training: TrainingConfig, tokenizers: TokenizerPair) -> TokenizerPair:
    # Both sides of a shared vocabulary take turns with one sampler.
    samplers = [
        SubwordDropout(cast(SentencePieceTokenizer, tokenizer), training.subword_dropout, training.seed)
        for tokenizer in tokenizers.files().values()
    ]
    return TokenizerPair(samplers[0], samplers[-1])


def _term_annotation(config: Config, pairs: SentencePairs, tokenizers: TokenizerPair) -> TermAnnotation:
    has_pieces = len(tokenizers.source.term_ids) > 0
    require(has_pieces, "data.terms", "0 for a vocabulary without pieces for terms", config.data.terms)
    return TermAnnotation(learn_lexicon(pairs), config.data.terms, config.training.seed)


def _report_pairs(name: str, pairs: EncodedPairs, tokenizers: TokenizerPair) -> None:
    left_out = [
        f"{count:,} {reason}"
        for count, reason in ((pairs.num_empty, "empty"), (pairs.num_too_long, "too long"))
        if count
    ]
    remark = f" (left out: {', '.join(left_out)})" if left_out else ""
    _log.info(f"{name}: {counted(len(pairs), 'sentence pair')}{remark}")
    for side, tokenizer in tokenizers._asdict().items():
        share = pairs.share_of(tokenizer.unknown_ids(), side)
        if share >= _NOTABLE_SHARE:
            _log.warning(
                f"{name}: {share:.1%} of the {side} tokens are unknown to the vocabulary or spelled in bytes, "
                "as with another script; a model learns little from them"
            )
