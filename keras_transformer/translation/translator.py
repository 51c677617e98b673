"""Translator, which combines a model, its tokenizers and search in a TensorFlow graph."""

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
from .documents import TranslatedDocument
from .graph import ALIGNMENT_LAYER, TokenScores, TranslationGraph
from .search import TranslationTensors
from .searched_model import Candidates, Sampling, TranslationModel
from .shapes import SearchShapes

_SURROGATE = re.compile("[\ud800-\udfff]")


class Translation(NamedTuple):
    """Best translations of a text.

    Attributes:
        hypotheses: translations with scores, as in `TranslationTensors`.
        source_length: number of tokens in the source.
    """

    hypotheses: list[tuple[str, float]]
    source_length: int


class Alignment(NamedTuple):
    """Alignment of target tokens with source tokens, without padding. See `AlignmentTensors`."""

    source: list[str]
    target: list[str]
    positions: list[int]
    attention: Annotated[np.ndarray, "float32 (target length, source length)"]


class Translator:
    """Translator for a trained model (section 6.1 of the paper).

    Sources with more than `config.max_length` tokens, including the end token, are truncated. The
    translation of an empty, blank or invisible text is empty. With `decoding.tag`, every source
    starts with the tag, which counts as a token.

    Set random seeds (`keras.utils.set_random_seed`) before you load a translator, because setting a
    seed makes TensorFlow lose its SentencePiece models. A translator does not work in a process
    that is forked later, because TensorFlow's threads do not exist there. You can pickle a
    translator that was loaded from a model directory: the pickle contains the path of the
    directory, and unpickling loads the translator again.

    Args:
        model: `Transformer` or another `TranslationModel`. `score`, `align`, `encode` and
            shortlists need a `Transformer`.
        tokenizers: tokenizer that both languages share, or a `TokenizerPair`.
        decoding: search settings.
        language: language of the texts, as a BCP 47 tag such as "en". Its rules split documents
            into sentences. Defaults to None: unknown.
        is_int8: whether to round matrices to 8 bits. They are exported in 8 bits, but the model
            computes in float32. Defaults to False.
        shortlist: target tokens that search considers. Scores are then normalized over these tokens
            only. Defaults to None: all tokens.
        is_guided: whether the model was trained with `training.guided_alignment`. Alignments in the
            last decoder layer then use its first head. Defaults to False.

    Attributes:
        graph: the same operations as functions of tensors, for `tf.function` and SavedModels.

    Raises:
        ConfigError: If the model and the tokenizers do not match, or the language is not a BCP 47
            tag.

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
            # Placeholders are the last tokens, so they are also the last candidates.
            also = self.tokenizers.target.placeholder_ids if codec.spans else range(0)
            self.candidates = Candidates(shortlist, model.config.target_vocab_size, also)
        self.graph = TranslationGraph(
            model, codec, decoding, language, is_int8, self.candidates, is_guided
        )
        self._traced: dict[tuple[object, ...], Callable[..., Any]] = {}
        self._process = os.getpid()
        # Arguments of `load` for pickling.
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
        """Loads a translator from a model directory.

        Args:
            model_dir: model directory.
            decoding: search settings. Defaults to None: the settings in the model directory.
            precision: "float32", "bfloat16" or "int8-weights". "bfloat16" halves the size of the
                weights, and is faster on processors with bfloat16 instructions. It is accurate to
                two or three decimal digits, so search may choose another translation with nearly
                the same score. "int8-weights" rounds matrices to 8 bits, which reduces a SavedModel
                to a quarter of its size. It computes in float32. Defaults to "float32".
            language: language of the texts, see `Translator`. Defaults to None.
            shortlist: whether to use the shortlist of the model directory, if there is one.
                Defaults to True.

        Raises:
            ConfigError: If `model_dir` is not a model directory or has no trained weights, or if a
                value is invalid.
            InvalidFileError: If weights or tokenizers are damaged or do not match the
                configuration.
            MemoryLimitError: If the model needs more memory than the machine has.
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
        """Returns the best translation of each text."""
        return [translation.hypotheses[0][0] for translation in self.translate(texts)]

    def n_best(self, texts: Sequence[str | bytes], n: int) -> list[list[tuple[str, float]]]:
        """Returns the `n` best translations of each text with their scores, best first."""
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
        """Returns the best translations of each text with scores, and the lengths of the sources.

        Args:
            texts: strings or UTF-8 bytes. Bytes that are not valid UTF-8 are replaced by U+FFFD.
            n: number of translations per text, at most the beam size. Defaults to 1.
            prefixes: prefix of each translation. The translation starts with the tokenized prefix,
                without its trailing white space. Prefixes count toward the maximum length but not
                toward scores, and they are truncated after `config.max_length` tokens. Defaults to
                None: no prefixes.
            sampling: options for sampling instead of search. `n` must be 1. Defaults to None.
            tags: tag in front of each text instead of `decoding.tag`, such as ">>de<<", or "" for
                `decoding.tag`. Defaults to None: `decoding.tag` for all texts.

        Raises:
            ConfigError: If an argument is invalid.
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

    def _sample(self, top_k: int | None, **inputs: Any) -> TranslationTensors:
        values = {name: inputs.pop(name) for name in Sampling._fields if name in inputs}
        return self.graph.search(**inputs, sampling=Sampling(top_k=top_k, **values))

    def compile_search(
        self,
        lengths: Sequence[int] = SearchShapes().lengths,
        batch_sizes: Sequence[int] = SearchShapes().batch_sizes,
    ) -> None:
        """Compiles the search for short texts with XLA.

        Use this method in programs that translate short texts individually: each text then takes a
        fraction of the time. The first text of each shape takes a few seconds longer, because the
        search is then compiled for that shape. Texts that fit no shape, and calls with prefixes or
        sampling, use the plain search. So does a copy of the translator, and a translator that was
        pickled: call this method again in another process.

        Args:
            lengths: numbers of tokens in a text, including the end token. Texts are padded to the
                next length. Defaults to (16, 24, 32, 48, 64).
            batch_sizes: numbers of texts that are translated together, at most 16. Batches are
                padded to the next size. Defaults to (1,).

        Raises:
            ConfigError: If a size is not positive, or a batch size is more than 16.
        """
        shapes = SearchShapes(tuple(lengths), tuple(batch_sizes))
        self.graph = self.graph.compiled(shapes.up_to(self.model.config.max_length))
        self._traced.clear()

    def translate_document(
        self, texts: Sequence[str | bytes], language: str | None = None
    ) -> list[TranslatedDocument]:
        """Translates documents, which may consist of several sentences, sentence by sentence.

        Texts are split at line breaks and by rules for punctuation, capitals and abbreviations.
        Sentences with more than `max_length` tokens are not truncated, but divided at commas, at
        spaces, at the end of a phrase, or between characters. White space between sentences stays
        unchanged, unless the source and the translation are in different scripts: Chinese and
        Japanese translations then have no spaces between sentences, and other translations have a
        space. At most 200 sentences of a document are translated, and no sentence that starts after
        its first 8,192 tokens.

        Args:
            texts: strings or UTF-8 bytes. Bytes that are not valid UTF-8 are replaced by U+FFFD.
            language: language of the texts, as a BCP 47 tag such as "de" or "zh-Hant". It selects
                the abbreviations that do not end a sentence. Defaults to None: the translator's
                language or, if that is unknown, the abbreviations of all languages, except those
                that may be words in another language.

        Returns:
            A list of `TranslatedDocument`, each with a translation and whether a part was left out.

        Raises:
            ConfigError: If an argument is invalid.
        """
        language_tag("language", language, optional=True)
        documents = self._run(
            self.graph.translate_documents, _text_tensors(texts=texts), language=language
        )
        rows = zip(documents.texts, documents.was_cut, strict=True)
        return [TranslatedDocument(text.decode(), bool(was_cut)) for text, was_cut in rows]

    def score(self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]) -> np.ndarray:
        """Computes the log probability of each target, including its end token, given its source.

        Args:
            sources: texts, truncated after `config.max_length` tokens.
            targets: a text for each source, truncated after `config.max_length` tokens.

        Returns:
            Array of shape (number of pairs,) and dtype float32.

        Raises:
            ConfigError: If the numbers of sources and targets differ.
        """
        return np.asarray(self.score_tokens(sources, targets).log_probs)

    def score_tokens(
        self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]
    ) -> TokenScores:
        """Computes the log probabilities of targets and their tokens, and all lengths in tokens."""
        return self._run(self.graph.score, _text_tensors(sources=sources, targets=targets))

    def align(
        self,
        sources: Sequence[str | bytes],
        targets: Sequence[str | bytes],
        layer: int = ALIGNMENT_LAYER,
    ) -> list[Alignment]:
        """Aligns the tokens of each target with the tokens of its source.

        The alignment uses the attention of a decoder layer, averaged over the heads. In the last
        layer of a model with guided alignment, it uses the first head.

        Args:
            sources: texts, truncated after `config.max_length` tokens.
            targets: a text for each source, truncated after `config.max_length` tokens.
            layer: index of a decoder layer in `model.decoder.layers`. Defaults to -1: the last
                layer.

        Raises:
            ConfigError: If the numbers of sources and targets differ, or there is no such layer.
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
        """Computes an embedding of each text, which is the mean of the encoder's outputs.

        You can use embeddings to find similar texts, for example.

        Returns:
            Array of shape (number of texts, d_model) and dtype float32.
        """
        return self._run(self.graph.encode, _text_tensors(texts=texts)).vectors

    def tokenize(self, texts: Sequence[str | bytes]) -> list[list[str]]:
        """Returns the tokens of sources, truncated and with end tokens."""
        tokens = self._run(self.graph.tokenize, _text_tensors(texts=texts))
        return [_filled(pieces) for pieces in tokens.pieces]

    def detokenize(
        self, token_ids: Annotated[Tensor, "int32 (batch, length)"]
    ) -> Annotated[Tensor, "string (batch,)"]:
        """Joins target tokens into texts.

        Special tokens and ids outside of the vocabulary are ignored.
        """
        return self.graph.detokenize(tf.convert_to_tensor(token_ids, tf.int32))

    def token_ids(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Returns the token ids of sources, int32 (batch, length).

        They are truncated, include end tokens and are padded with 0.
        """
        return self._run(self.graph.tokenize, _text_tensors(texts=texts)).token_ids

    def num_tokens(self, texts: Sequence[str | bytes], side: Side = "source") -> np.ndarray:
        """Returns the number of tokens in each text, including its end token, before truncation.

        Args:
            texts: strings or UTF-8 bytes.
            side: "source" or "target", which selects the tokenizer. Defaults to "source".
        """
        one_of("side", side, get_args(Side))
        return self._run(self.graph.codec.num_tokens, _text_tensors(texts=texts), side=side)

    def _run(
        self, function: Callable[..., Any], tensors: dict[str, Tensor], **options: object
    ) -> Any:
        """Calls a function of the graph and returns its results as NumPy arrays.

        The function is traced once per combination of options and tensor names.
        """
        if os.getpid() != self._process:
            raise Error(
                "a Translator cannot be used in a process that was forked after it was made: "
                "start processes with multiprocessing.get_context('spawn')"
            )
        # TensorFlow would convert NumPy integers to tensors.
        options = {name: plain(value) for name, value in options.items()}
        key = (function, *options.items(), *tensors)
        if key not in self._traced:
            types = {
                name: tf.TensorSpec([None] * len(tensor.shape), tensor.dtype)
                for name, tensor in tensors.items()
            }
            # AutoGraph is not needed, because these functions have no Python control flow, and it
            # would take most of the tracing time.
            traceable = tf.function(functools.partial(function, **options), autograph=False)
            self._traced[key] = traceable.get_concrete_function(**types)
        return tf.nest.map_structure(np.asarray, self._traced[key](**tensors))


def _text_tensors(**sides: Sequence[str | bytes]) -> dict[str, Tensor]:
    """Converts lists of texts to tensors.

    Raises:
        ConfigError: If an argument is not a list of texts, or the lengths differ.
    """
    lists = {name: _checked_texts(name, texts) for name, texts in sides.items()}
    if len({len(texts) for texts in lists.values()}) > 1:
        received = " and ".join(f"{len(texts)} {name}" for name, texts in lists.items())
        raise ConfigError(f"{' and '.join(lists)} must have the same length; received {received}")
    return {name: tf.constant(texts, tf.string) for name, texts in lists.items()}


def _checked_texts(name: str, texts: Sequence[str | bytes]) -> list[str | bytes]:
    # Reject sets and mappings, because they do not define an order of texts.
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
