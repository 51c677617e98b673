"""What the text becomes for training: tokenizers, token ids, and plans of batches of them."""

import functools
import logging
import pathlib
from typing import cast

from keras_transformer.config import Config
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.files import naming_errors
from keras_transformer.rules import require
from keras_transformer.runtime.progress import counted
from keras_transformer.tokenizers import SentencePieceTokenizer, TokenizerPair, load_tokenizers, tokenizer_filenames
from keras_transformer.tokenizers.placeholders import SpanFinder, span_finder
from keras_transformer.tokenizers.text_codec import TextCodec

from ..alignment.lexicon import learn_lexicon
from ..batches.augmentation import Augmentation, SubwordDropout, TermAnnotation
from ..batches.encoded_pairs import EncodedPairs, Epochs, align_encoded, encode
from ..batches.pipeline import BatchPlan, plan_batches
from ..batches.vocabulary import learn_tokenizers
from ..text.corpus import SentencePairs
from .devices import Workers

_log = logging.getLogger(__name__)

# A vocabulary leaves out one character in 10,000 of the text that it is learned from.
_NOTABLE_SHARE = 0.01


class TrainingText:
    """The texts of a run, and what they become: tokenizers, and the plans of batches of token ids."""

    def __init__(self, config: Config, train_pairs: SentencePairs, valid_pairs: SentencePairs) -> None:
        self.config = config
        self.train_pairs = train_pairs
        self.valid_pairs = valid_pairs

    @functools.cached_property
    def augmentation(self) -> Augmentation | None:
        """The other shapes in which the model sees the training text, or None."""
        data = self.config.data
        if not data.augment:
            return None
        return Augmentation(data.augment, self.config.training.seed, SpanFinder(self.config.decoding.keep or ()))

    @functools.cached_property
    def seen_pairs(self) -> SentencePairs:
        """The training text in the shapes in which the model sees it."""
        return self.augmentation.text(self.train_pairs) if self.augmentation else self.train_pairs

    def tokenizers(
        self, model_dir: ModelDir, init_from: ModelDir | None, workers: Workers, directory: pathlib.Path
    ) -> TokenizerPair:
        """Loads the tokenizers of an earlier run or of `init_from`, or learns them.

        The other workers get those of the chief, and keep them in the directory.
        """
        config = self.config.tokenizer
        if not workers.is_chief:
            for name in tokenizer_filenames(config):
                path, content = directory / name, workers.from_chief(b"")
                with naming_errors(path):
                    path.write_bytes(content)
            return load_tokenizers(directory, config)
        trained = model_dir if model_dir.is_trained() else init_from
        if trained is not None:
            tokenizers = load_tokenizers(trained.path, config)
        else:
            tokenizers = learn_tokenizers(self.seen_pairs, config, self.config.data.terms > 0)
        for tokenizer in tokenizers.files().values():
            workers.from_chief(tokenizer.file_content)
        return tokenizers

    def plan(self, tokenizers: TokenizerPair, num_parts: int, directory: pathlib.Path) -> tuple[BatchPlan, BatchPlan]:
        """Tokenizes the texts into files of the directory, and plans batches that divide into so many parts.

        Returns:
            The plans of the training text and of the validation text.
        """
        training, max_length = self.config.training, self.config.model.max_length
        samplers, terms = tokenizers, None
        if training.subword_dropout:
            # Both sides share one sampler if they share the vocabulary.
            dropouts = [
                SubwordDropout(cast(SentencePieceTokenizer, tokenizer), training.subword_dropout, training.seed)
                for tokenizer in tokenizers.files().values()
            ]
            samplers = TokenizerPair(dropouts[0], dropouts[-1])
        if share := self.config.data.terms:
            has_pieces = len(tokenizers.source.term_ids) > 0
            require(has_pieces, "data.terms", "0 for a vocabulary without pieces for terms", share)
            terms = TermAnnotation(learn_lexicon(self.train_pairs), share, training.seed)
        is_drawn_anew = training.subword_dropout or self.augmentation or terms
        times = training.subword_samples if is_drawn_anew else 1
        epochs = Epochs(self.train_pairs, times, self.augmentation, terms)
        spans = span_finder(self.config.decoding, tokenizers)
        train_codec = TextCodec(samplers, max_length, spans, are_annotated=terms is not None)
        valid_codec = TextCodec(tokenizers, max_length, spans)
        train_ids = encode(epochs, train_codec, directory / "train")
        if training.guided_alignment:
            train_ids = align_encoded(train_ids)
        valid_ids = encode(Epochs(self.valid_pairs), valid_codec, directory / "valid")
        _report_pairs("training text", train_ids, tokenizers)
        _report_pairs("validation text", valid_ids, tokenizers)
        train, valid = (
            plan_batches(ids, training.tokens_per_batch, training.num_buckets, num_parts)
            for ids in (train_ids, valid_ids)
        )
        return train, valid


def _report_pairs(name: str, pairs: EncodedPairs, tokenizers: TokenizerPair) -> None:
    counts = ((pairs.num_empty, "empty"), (pairs.num_too_long, "too long"))
    left_out = [f"{count:,} {reason}" for count, reason in counts if count]
    remark = f" (left out: {', '.join(left_out)})" if left_out else ""
    _log.info(f"{name}: {counted(len(pairs), 'sentence pair')}{remark}")
    for side, tokenizer in tokenizers._asdict().items():
        share = pairs.share_of(tokenizer.unknown_ids(), side)
        if share >= _NOTABLE_SHARE:
            _log.warning(
                f"{name}: {share:.1%} of the {side} tokens are unknown to the vocabulary or spelled in bytes, "
                "as with another script; a model learns little from them"
            )
