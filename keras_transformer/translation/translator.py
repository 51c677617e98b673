"""Text to text: a model, its tokenizers and a search in one TensorFlow graph."""

import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np
import tensorflow as tf

from ..checks import integer, one_of, plain, require
from ..config import DecodingConfig
from ..config.values import Precision, language_tag
from ..errors import ConfigError, Error
from ..model_dir import ModelDir
from ..model_dir.shortlist_file import Shortlist, read_shortlist
from ..tensors import Tensor
from ..tokenizers import Tokenizer, TokenizerPair, load_tokenizers
from ..tokenizers.text_codec import Side, TextCodec
from .compiled_search import SearchShapes
from .documents import TranslatedDocument
from .graph import ALIGNMENT_LAYER, TokenScores, TranslationGraph
from .search import Candidates, Sampling, TranslationModel, Translations

_SURROGATE = re.compile("[\ud800-\udfff]")


class Translation(NamedTuple):
    """The best translations of one text.

    Attributes:
        hypotheses: each translation with its score, as in `Translations`.
    """

    hypotheses: list[tuple[str, float]]
    source_length: int


class Alignment(NamedTuple):
    """Which tokens of its source the tokens of a target come from, without padding."""

    source: list[str]
    target: list[str]
    positions: list[int]
    attention: Annotated[np.ndarray, "float32 (target length, source length)"]


class Translator:
    """Translates texts with a trained model (section 6.1 of the paper).

    A source longer than `config.max_length` tokens, including its end token, is truncated; what is
    far beyond the limit is not read at all. The translation of an empty, blank or invisible text is
    empty. With `decoding.tag`, every source has that tag in front, which is one of its tokens.

    Setting a seed (`keras.utils.set_random_seed`) makes TensorFlow lose the SentencePiece models
    that it holds: set seeds before loading a translator. A translator that was loaded is pickled as
    the path of its model directory, from which it is loaded again. It does not work in a process
    that is forked later: TensorFlow's threads are not there.

    Args:
        model: `Transformer`, or another `TranslationModel`; only `score` and a shortlist need a
            `Transformer`.
        tokenizers: one that both languages share, or a pair.
        language: of the texts, a BCP 47 tag such as "en", by whose rules documents are divided into
            sentences. Defaults to None: unknown.
        is_int8: whether matrices are rounded to 8 bits, in which they are exported; the model
            computes in float32.
        shortlist: the tokens among which translations are searched. Scores are then those of a
            model that knows only these. Defaults to None: all tokens.
        is_guided: whether the model was trained with `training.guided_alignment`. Its first head
            then aligns.

    Attributes:
        graph: the same as functions of tensors, for `tf.function` and SavedModels.

    Raises:
        ConfigError: Model and tokenizer do not fit, or the language is not known.

    Example:
        >>> translator = Translator.load("models/en-de")
        >>> translator(["A dog runs."])
        ['Ein Hund rennt.']
    """

    def __init__(
        self,
        model: TranslationModel,
        tokenizers: Tokenizer | TokenizerPair,
        decoding: DecodingConfig,
        language: str | None = None,
        is_int8: bool = False,
        shortlist: Shortlist | None = None,
        is_guided: bool = False,
    ) -> None:
        language_tag("language", language, optional=True)
        self.tokenizers = TokenizerPair.of(tokenizers)
        for side in ("target", "source"):
            size = getattr(self.tokenizers, side).vocab_size
            size_of_model = getattr(model.config, f"{side}_vocab_size")
            name = "tokenizer.vocab_size"
            if not self.tokenizers.is_shared:
                name = f"{side} {name}"
            rule = f"the model's {side}_vocab_size={size_of_model}"
            require(size == size_of_model, name, rule, size)
        self.model = model
        self.decoding = decoding
        self.language = language
        codec = TextCodec.for_translation(self.tokenizers, model.config.max_length, decoding)
        self.candidates = None
        if shortlist is not None:
            # Placeholders are the last tokens, so they are the last candidates too.
            also = self.tokenizers.target.placeholder_ids if codec.spans else range(0)
            self.candidates = Candidates(shortlist, model.config.target_vocab_size, also)
        self.graph = TranslationGraph(
            model, codec, decoding, language, is_int8, self.candidates, is_guided
        )
        self._traced: dict[tuple[object, ...], Callable[..., Any]] = {}
        self._process = os.getpid()
        # The arguments of `load`.
        self._loaded_with: tuple[object, ...] | None = None

    def __reduce__(self) -> tuple[Callable[..., "Translator"], tuple[object, ...]]:
        if self._loaded_with is None:
            raise ConfigError(
                "only a Translator that was loaded from a model directory can be pickled or copied"
            )
        return type(self).load, self._loaded_with

    @classmethod
    def load(
        cls,
        model_dir: str | os.PathLike[str] | ModelDir,
        decoding: DecodingConfig | None = None,
        precision: Precision = "float32",
        language: str | None = None,
        shortlist: bool = True,
    ) -> "Translator":
        """Loads the translator of a model directory.

        Args:
            decoding: Defaults to the directory's own.
            precision: "float32", or "bfloat16" for weights of half the size, and more speed on
                processors with instructions for it. Its two to three digits may let another
                translation win by a narrow margin. "int8-weights" rounds matrices to 8 bits, for
                SavedModels of a quarter of the size that compute in float32. Defaults to "float32".
            language: of the texts, see `Translator`.
            shortlist: whether translations are searched among the tokens of the directory's
                shortlist, if it has one.

        Raises:
            ConfigError: It is not a model directory, it has no trained weights, or a value breaks
                its rule.
            InvalidFileError: Its weights or tokenizers are damaged, or do not fit its
                configuration.
            MemoryLimitError: The model takes more memory than the machine has.
        """
        model_dir = ModelDir(model_dir)
        config = model_dir.read_config()
        one_of("precision", precision, get_args(Precision))
        is_int8 = precision == "int8-weights"
        model = model_dir.load_model(config.model, "float32" if is_int8 else precision)
        tokenizers = load_tokenizers(model_dir.path, config.tokenizer, config.data.normalization)
        shortlisted = None
        if shortlist and model_dir.shortlist_path.is_file():
            files = [tokenizer.file_content for tokenizer in tokenizers.files().values()]
            source, target = tokenizers
            shortlisted = read_shortlist(
                model_dir.shortlist_path, source.vocab_size, target.vocab_size, files
            )
        is_guided = config.training.guided_alignment > 0
        decoding = decoding or config.decoding
        translator = cls(model, tokenizers, decoding, language, is_int8, shortlisted, is_guided)
        translator._loaded_with = (
            os.path.abspath(model_dir.path),
            decoding,
            precision,
            language,
            shortlist,
        )
        return translator

    @property
    def precision(self) -> str:
        """The precision of the weights."""
        return "int8-weights" if self.graph.is_int8 else self.model.weights[0].dtype

    def __call__(self, texts: Sequence[str | bytes]) -> list[str]:
        """Returns the best translation of every text."""
        return [translation.hypotheses[0][0] for translation in self.translate(texts)]

    def n_best(self, texts: Sequence[str | bytes], n: int) -> list[list[tuple[str, float]]]:
        """Returns the `n` best translations of every text with their scores, the best first."""
        return [translation.hypotheses for translation in self.translate(texts, n)]

    def translate(
        self,
        texts: Sequence[str | bytes],
        n: int = 1,
        *,
        prefixes: Sequence[str | bytes] | None = None,
        sampling: Sampling | None = None,
        tags: Sequence[str] | None = None,
    ) -> list[Translation]:
        """Translates texts, and returns their best translations with scores, and their lengths.

        Args:
            texts: strings, or their UTF-8 bytes; bytes that are not UTF-8 are read as U+FFFD.
            n: how many translations of each text, at most the beam size.
            prefixes: the beginning of each translation, as well as the tokenizer can restore it,
                and without the white space at its end. It counts for their limit of length, not for
                their scores, and is truncated after `config.max_length` tokens. Defaults to None:
                nothing.
            sampling: draws translations at random instead of searching the best; `n` is 1.
            tags: the tag in front of each text instead of `decoding.tag`, such as ">>de<<"; "" for
                `decoding.tag`. Defaults to None: `decoding.tag` everywhere.

        Raises:
            ConfigError: An argument breaks its rule.
        """
        n = integer("n", n)
        beam_size = self.decoding.beam_size
        require(1 <= n <= beam_size, "n", f"from 1 to the beam size {beam_size}", n)
        given = {"texts": texts}
        if prefixes is not None:
            given["prefixes"] = prefixes
        if tags is not None:
            given["tags"] = tags
        inputs = _text_tensors(**given)
        for place, tag in enumerate(np.asarray(inputs.get("tags", ()))):
            if tag:
                self.graph.codec.check_tag(f"tags[{place}]", tag.decode(errors="replace"))
        if sampling is None:
            translations = self._run(self.graph.search, inputs, n_best=n)
        else:
            require(isinstance(sampling, Sampling), "sampling", "a Sampling", sampling)
            require(n == 1, "n", "1 with sampling", n)
            inputs |= sampling.inputs()
            translations = self._run(self._sample, inputs, top_k=sampling.top_k)
        results = []
        rows = (translations.texts, translations.scores, translations.source_lengths)
        for texts_of_row, scores_of_row, length in zip(*rows, strict=True):
            hypotheses = [
                (text.decode(), float(score))
                for text, score in zip(texts_of_row, scores_of_row, strict=True)
            ]
            results.append(Translation(hypotheses, int(length)))
        return results

    def _sample(self, top_k: int | None, **inputs: Any) -> Translations:
        values = {name: inputs.pop(name) for name in Sampling._fields if name in inputs}
        return self.graph.search(**inputs, sampling=Sampling(top_k=top_k, **values))

    def compile_search(
        self,
        lengths: Sequence[int] = SearchShapes().lengths,
        batch_sizes: Sequence[int] = (1,),
    ) -> None:
        """Compiles the search of short texts with XLA, from now on.

        Use it in a program that translates short texts one by one: each takes a fraction of the
        time. The first text of each shape takes some seconds longer, because its shape is compiled
        then. Other texts use the plain search, and so do prefixes and sampling.

        Args:
            lengths: tokens of a text with its end token; a text is padded to the next length.
            batch_sizes: numbers of texts that are translated together, padded in the same way.

        Raises:
            ConfigError: A size is not positive.
        """
        for name, sizes in (("lengths", lengths), ("batch_sizes", batch_sizes)):
            require(len(sizes) > 0, name, "at least one size", sizes)
            for place, size in enumerate(sizes):
                integer(f"{name}[{place}]", size, at_least=1)
        shapes = SearchShapes(tuple(lengths), tuple(batch_sizes))
        self.graph.compile_search(shapes.up_to(self.model.config.max_length))
        self._traced.clear()

    def translate_document(
        self, texts: Sequence[str | bytes], language: str | None = None
    ) -> list[TranslatedDocument]:
        """Translates texts of any number of sentences, each sentence by itself.

        Sentences end at line breaks and by rules for punctuation, capitals and abbreviations. One
        that is longer than the model's `max_length` tokens is divided instead of being truncated:
        at commas, spaces, the end of a phrase, or between characters. White space between sentences
        stays as it is, except that Chinese and Japanese translations have no space there, and
        others have one. At most 200 sentences of a document are translated, and none after 8,192
        tokens.

        Args:
            texts: strings, or their UTF-8 bytes; bytes that are not UTF-8 are read as U+FFFD.
            language: of the texts, a BCP 47 tag such as "de" or "zh-Hant", whose abbreviations are
                known. Defaults to None: the translator's, or the abbreviations of all languages,
                unless they are words of another.

        Returns:
            The translations, and whether anything was left out.

        Raises:
            ConfigError: An argument breaks its rule.
        """
        language_tag("language", language, optional=True)
        documents = self._run(
            self.graph.translate_documents, _text_tensors(texts=texts), language=language
        )
        rows = zip(documents.texts, documents.was_cut, strict=True)
        return [TranslatedDocument(text.decode(), bool(was_cut)) for text, was_cut in rows]

    def score(self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]) -> np.ndarray:
        """Computes the log probability of every target, including its end token, given its source.

        Args:
            sources: each is truncated after `config.max_length` tokens.
            targets: one for each source; each is truncated after `config.max_length` tokens.

        Returns:
            float32 (number of pairs,).

        Raises:
            ConfigError: The numbers differ.
        """
        return np.asarray(self.score_tokens(sources, targets).log_probs)

    def score_tokens(
        self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]
    ) -> TokenScores:
        """Computes the log probability of every target and of its tokens, and lengths."""
        return self._run(self.graph.score, _text_tensors(sources=sources, targets=targets))

    def align(
        self,
        sources: Sequence[str | bytes],
        targets: Sequence[str | bytes],
        layer: int = ALIGNMENT_LAYER,
    ) -> list[Alignment]:
        """Finds which tokens of its source each token of a target comes from.

        It uses the attention of a layer of the decoder: the mean of its heads, or, in the last
        layer of a model with guided alignment, its first head.

        Args:
            sources: each is truncated after `config.max_length` tokens.
            targets: one for each source; each is truncated after `config.max_length` tokens.
            layer: an index of `model.decoder.layers`. Defaults to -1: the last.

        Raises:
            ConfigError: The numbers differ, or there is no such layer.
        """
        layer = integer("layer", layer)
        inputs = _text_tensors(sources=sources, targets=targets)
        pairs = self._run(self.graph.align, inputs, layer=layer)
        alignments = []
        rows = (pairs.source.pieces, pairs.target.pieces, pairs.positions, pairs.attention)
        for source_pieces, target_pieces, positions, attention in zip(*rows, strict=True):
            source = _filled(source_pieces)
            target = _filled(target_pieces)
            positions = positions[: len(target)].tolist()
            attention = attention[: len(target), : len(source)]
            alignments.append(Alignment(source, target, positions, attention))
        return alignments

    def encode(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Computes vectors by which similar texts can be found: the means of the encoder's outputs.

        Returns:
            float32 (number of texts, d_model).
        """
        return self._run(self.graph.encode, _text_tensors(texts=texts)).vectors

    def tokenize(self, texts: Sequence[str | bytes]) -> list[list[str]]:
        """Returns the tokens of sources as the model reads them: truncated, with end tokens."""
        tokens = self._run(self.graph.tokenize, _text_tensors(texts=texts))
        return [_filled(pieces) for pieces in tokens.pieces]

    def detokenize(
        self, token_ids: Annotated[Tensor, "int32 (batch, length)"]
    ) -> Annotated[Tensor, "string (batch,)"]:
        """Joins tokens of the target language into texts.

        Special tokens and ids outside the vocabulary are ignored.
        """
        return self.tokenizers.target.detokenize(tf.convert_to_tensor(token_ids, tf.int32))

    def token_ids(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Returns sources as the model takes them: int32 (batch, length).

        They are truncated, and have end tokens and then zeros.
        """
        return self._run(self.graph.tokenize, _text_tensors(texts=texts)).token_ids

    def num_tokens(self, texts: Sequence[str | bytes], side: Side = "source") -> np.ndarray:
        """Returns how many tokens every text has, including its end token, before it is truncated.

        Args:
            side: whose tokenizer counts.
        """
        one_of("side", side, get_args(Side))
        return self._run(self.graph.codec.num_tokens, _text_tensors(texts=texts), side=side)

    def _run(
        self, function: Callable[..., Any], tensors: dict[str, Tensor], **options: object
    ) -> Any:
        """Calls a function of the graph and returns its results as NumPy arrays.

        The function is traced once for the same options and tensors of the same names.
        """
        if os.getpid() != self._process:
            raise Error(
                "a Translator cannot be used in a process that was forked after it was made: "
                "start processes with multiprocessing.get_context('spawn')"
            )
        # TensorFlow would make a tensor of an integer of NumPy.
        options = {name: plain(value) for name, value in options.items()}
        key = (function, *options.items(), *tensors)
        if key not in self._traced:
            types = {
                name: tf.TensorSpec([None] * len(tensor.shape), tensor.dtype)
                for name, tensor in tensors.items()
            }
            # Without AutoGraph: these functions have no Python control flow, and looking for it
            # would dominate tracing.
            traceable = tf.function(functools.partial(function, **options), autograph=False)
            self._traced[key] = traceable.get_concrete_function(**types)
        return tf.nest.map_structure(np.asarray, self._traced[key](**tensors))


def _text_tensors(**sides: Sequence[str | bytes]) -> dict[str, Tensor]:
    """Returns lists of texts as tensors.

    Raises:
        ConfigError: One is not a list of texts, or their lengths differ.
    """
    lists = {name: _checked_texts(name, texts) for name, texts in sides.items()}
    if len({len(texts) for texts in lists.values()}) > 1:
        received = " and ".join(f"{len(texts)} {name}" for name, texts in lists.items())
        raise ConfigError(f"{' and '.join(lists)} must have the same length; received {received}")
    return {name: tf.constant(texts, tf.string) for name, texts in lists.items()}


def _checked_texts(name: str, texts: Sequence[str | bytes]) -> list[str | bytes]:
    # A set has no order.
    is_list = isinstance(texts, Iterable) and not isinstance(texts, str | bytes | Set | Mapping)
    is_list = is_list and getattr(texts, "ndim", 1) == 1
    require(is_list, name, "a list of strings", texts)
    texts = list(texts)
    for place, text in enumerate(texts):
        require(isinstance(text, str | bytes), f"{name}[{place}]", "a string", text)
        is_unicode = isinstance(text, bytes) or not _SURROGATE.search(text)
        require(is_unicode, f"{name}[{place}]", "without lone surrogates", text)
    return texts


def _filled(pieces: np.ndarray) -> list[str]:
    return [piece.decode() for piece in pieces if piece]
