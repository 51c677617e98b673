"""Text to text: a model, its tokenizers and a search in one TensorFlow graph."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from ..config import Config, DecodingConfig
from ..config.rules import check, require, shown
from ..config.values import Language, Precision
from ..errors import ConfigError
from ..model_dir import ModelDir
from ..model_dir.shortlist_file import Shortlist, read_shortlist
from ..models import Transformer
from ..models.transformer import GUIDED_HEAD
from ..tensors import Tensor
from ..tokenizers import Tokenizer, TokenizerPair, load_tokenizers
from .documents import TranslatedDocument, TranslatedDocuments, search_documents
from .forced_decoding import mean_encoding, source_attention, token_log_probs
from .int8_matrices import int8_matrices
from .results import (
    Alignment,
    Alignments,
    Embeddings,
    Scores,
    Tokens,
    TokenScores,
    Translation,
    Translations,
)
from .search import CandidateTable, Request, Sampling, TranslationModel, sampling_inputs, search_tokens
from .text_reader import Side, TextReader

# The layer of the decoder whose attention aligns.
ALIGNMENT_LAYER = -1
# A nest of tensors.
Results = TypeVar("Results")


class Translator:
    """Translates texts with a trained model (section 6.1 of the paper).

    A source longer than `config.max_length` tokens, including its end token, is truncated; most of what is too long is
    not read at all. The translation of an empty or blank text is empty. With `decoding.tag`, every source has that tag
    in front, which is one of its tokens.

    Setting a seed (`keras.utils.set_random_seed`) makes TensorFlow lose the SentencePiece models that it holds: set
    seeds before loading a translator.

    Args:
        model: Transformer, or another `TranslationModel`; only `score` and a shortlist need a `Transformer`.
        tokenizers: Tokenizer that both languages share, or TokenizerPair.
        decoding: DecodingConfig.
        language: str, the language of the texts, such as "en", by whose rules documents are divided into sentences.
            Defaults to None: unknown.
        is_int8: bool. Whether matrices are rounded to 8 bits, in which they are exported; the model computes in
            float32. Defaults to False.
        shortlist: Shortlist, the pieces among which translations are searched. Scores are then those of a model that
            knows only these. Defaults to None: all pieces.
        is_guided: bool. Whether the model was trained with `training.guided_alignment`. Its first head then aligns.
            Defaults to False.

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
        language: Language | None = None,
        is_int8: bool = False,
        shortlist: Shortlist | None = None,
        is_guided: bool = False,
    ) -> None:
        check("language", language, Language | None)
        self.tokenizers = TokenizerPair.of(tokenizers)
        for side in ("target", "source"):
            tokenizer, name = getattr(self.tokenizers, side), f"{side}_vocab_size"
            vocab_size = getattr(model.config, name)
            require(
                tokenizer.vocab_size == vocab_size,
                "tokenizer.vocab_size" if self.tokenizers.is_shared else f"{side} tokenizer.vocab_size",
                f"the model's {name}={vocab_size}",
                tokenizer.vocab_size,
            )
        self.model = model
        self.decoding = decoding
        self.language = language
        self.is_guided = is_guided
        self.reader = TextReader(self.tokenizers, model.config.max_length, decoding)
        self._int8_matrices = int8_matrices(model.variables) if is_int8 else []
        self.candidates = None
        if shortlist is not None:
            # As the last ones they are the last of any candidates, too.
            also = self.tokenizers.target.placeholder_ids if self.reader.spans else range(0)
            self.candidates = CandidateTable(shortlist, model.config.target_vocab_size, also)
        self._graphs: dict[tuple[object, ...], Callable[..., Any]] = {}

    @classmethod
    def load(
        cls,
        model_dir: str | os.PathLike[str] | ModelDir,
        decoding: DecodingConfig | None = None,
        precision: Precision = "float32",
        language: Language | None = None,
        shortlist: bool = True,
    ) -> "Translator":
        """Loads the translator of a model directory.

        Args:
            model_dir: str, path or ModelDir.
            decoding: DecodingConfig. Defaults to the directory's own.
            precision: "float32", or "bfloat16" for weights of half the size, and more speed on processors with
                instructions for it. Its two to three digits may let another translation win by a narrow margin.
                "int8" rounds matrices to 8 bits, for SavedModels of a quarter of the size that compute in float32.
                Defaults to "float32".
            language: str, the language of the texts, see `Translator`. Defaults to None: unknown.
            shortlist: bool. Whether translations are searched among the pieces of the directory's shortlist, if it has
                one. Defaults to True.

        Raises:
            ConfigError: It is not a model directory, it has no trained weights, or a value breaks its rule.
            InvalidFileError: Its weights or tokenizers are damaged, or do not fit its configuration.
            MemoryLimitError: The model takes more memory than the machine has.
        """
        model_dir = ModelDir(model_dir)
        return cls.from_config(model_dir, model_dir.read_config(), decoding, precision, language, shortlist)

    @classmethod
    def from_config(
        cls,
        model_dir: ModelDir,
        config: Config,
        decoding: DecodingConfig | None = None,
        precision: Precision = "float32",
        language: Language | None = None,
        shortlist: bool = True,
    ) -> "Translator":
        """Loads the translator of a model directory whose configuration was read already; otherwise as `load`."""
        check("precision", precision, Precision)
        is_int8 = precision == "int8"
        model = model_dir.load_model(config.model, "float32" if is_int8 else precision)
        tokenizers = load_tokenizers(model_dir.path, config.tokenizer)
        found = None
        if shortlist and model_dir.shortlist_path.is_file():
            files = [tokenizer.file_content for tokenizer in tokenizers.files().values()]
            source, target = tokenizers
            found = read_shortlist(model_dir.shortlist_path, source.vocab_size, target.vocab_size, files)
        is_guided = config.training.guided_alignment > 0
        return cls(model, tokenizers, decoding or config.decoding, language, is_int8, found, is_guided)

    @property
    def precision(self) -> str:
        """The precision of the weights."""
        return "int8" if self._int8_matrices else self.model.variables[0].dtype

    @property
    def weights(self) -> list[tf.Variable]:
        """What the graphs read."""
        rounded = {id(matrix.variable) for matrix in self._int8_matrices}
        others = [variable.value for variable in self.model.variables if id(variable) not in rounded]
        return others + [tensor for matrix in self._int8_matrices for tensor in (matrix.integers, matrix.scales)]

    def _read_weights(self) -> keras.StatelessScope:
        """The scope in which the model computes, with the weights as tensors.

        TensorFlow does not run a loop that reads variables beside another loop.
        """
        rounded = {id(matrix.variable): matrix for matrix in self._int8_matrices}
        values = [
            rounded[id(variable)].to_float() if id(variable) in rounded else tf.identity(variable.value)
            for variable in self.model.variables
        ]
        return keras.StatelessScope(state_mapping=list(zip(self.model.variables, values, strict=True)))

    def __call__(self, texts: Sequence[str | bytes]) -> list[str]:
        """Returns the best translation of every text."""
        return [found.hypotheses[0][0] for found in self.translate(texts)]

    def n_best(self, texts: Sequence[str | bytes], n: int) -> list[list[tuple[str, float]]]:
        """Returns the `n` best translations of every text with their scores, the best first.

        Args and errors are those of `translate`.
        """
        return [found.hypotheses for found in self.translate(texts, n)]

    def translate(
        self,
        texts: Sequence[str | bytes],
        n: int = 1,
        *,
        prefixes: Sequence[str | bytes] | None = None,
        sampling: Sampling | None = None,
    ) -> list[Translation]:
        """Returns what is found for every text.

        Args:
            texts: list of strings, or of their UTF-8 bytes; bytes that are not UTF-8 are read as U+FFFD.
            n: int, at most the beam size. How many translations of each text. Defaults to 1.
            prefixes: list of strings, as many: what the translations begin with, as well as the tokenizer can restore
                it, and without the white space at its end. It counts for their limit of length, not for their scores,
                and is truncated after `config.max_length` tokens. Defaults to None: nothing.
            sampling: Sampling. Draws translations at random instead of searching the best; `n` is 1. Defaults to None.

        Raises:
            ConfigError: An argument breaks its rule.
        """
        _check_texts(texts)
        require(1 <= n <= self.decoding.beam_size, "n", f"from 1 to the beam size {self.decoding.beam_size}", n)
        inputs = {"texts": tf.constant(list(texts), tf.string)}
        if prefixes is not None:
            _check_lengths({"texts": texts, "prefixes": prefixes})
            inputs["prefixes"] = tf.constant(list(prefixes), tf.string)
        top_k = None
        if sampling is not None:
            sampling.check()
            require(n == 1, "n", "1 with sampling", n)
            top_k = sampling.top_k
            inputs |= sampling_inputs(sampling)
        graph = self._search_graph(n, top_k, inputs)
        found = graph(inputs)
        rows = zip(*map(np.asarray, (found.texts, found.scores, found.source_lengths)), strict=True)
        return [
            Translation([(text.decode("utf-8"), float(score)) for text, score in zip(*hypotheses)], int(length))
            for *hypotheses, length in rows
        ]

    def _search_graph(
        self, n_best: int, top_k: int | None, inputs: dict[str, Tensor]
    ) -> Callable[[dict[str, Tensor]], Translations]:
        def search(inputs: dict[str, Tensor]) -> Translations:
            sampling = None
            if "seed" in inputs:
                sampling = Sampling(
                    inputs["seed"], inputs["temperature"], top_k, inputs.get("top_p"), inputs["first_row"]
                )
            return self.search(inputs["texts"], n_best, inputs.get("prefixes"), sampling=sampling)

        key = (n_best, top_k, frozenset(inputs))
        if key not in self._graphs:
            types = {name: tf.TensorSpec([None] * len(each.shape), each.dtype) for name, each in inputs.items()}
            self._graphs[key] = _graph_of(search, [types])
        return self._graphs[key]

    def translate_document(
        self, texts: Sequence[str | bytes], language: Language | None = None
    ) -> list[TranslatedDocument]:
        """Translates texts of any number of sentences, each sentence by itself.

        Sentences end at line breaks and by rules for punctuation, capitals and abbreviations. One that is longer than
        the model's `max_length` tokens is divided at commas or spaces instead of being truncated. White space between
        sentences stays as it is. Of a document, 200 sentences are translated, or fewer that reach 8,192 tokens.

        Args:
            texts: list of strings, or of their UTF-8 bytes; bytes that are not UTF-8 are read as U+FFFD.
            language: str, the language of the texts, such as "de", whose abbreviations are known. Defaults to None:
                the translator's, or the abbreviations of all languages that are hardly words of others.

        Returns:
            The translations, and whether anything was left out.

        Raises:
            ConfigError: An argument breaks its rule.
        """
        _check_texts(texts)
        found = self._run(self.search_documents, {"texts": texts}, language=language)
        rows = zip(*map(np.asarray, found), strict=True)
        return [TranslatedDocument(text.decode("utf-8"), bool(was_cut)) for text, was_cut in rows]

    def search_documents(
        self, texts: Annotated[Tensor, "string (batch,)"], language: Language | None = None
    ) -> TranslatedDocuments:
        """Translates documents; traced by `tf.function` here and for export. Otherwise as `translate_document`."""
        return search_documents(self, texts, language or self.language)

    def _run(
        self, method: Callable[..., Results], sides: dict[str, Sequence[str | bytes]], **arguments: object
    ) -> Results:
        """Calls a method for graphs with texts, by their names; it is traced once for the same arguments."""
        _check_lengths(sides)
        key = (method.__name__, *sides, *arguments.items())
        if key not in self._graphs:
            types = [tf.TensorSpec([None], tf.string)] * len(sides)
            self._graphs[key] = _graph_of(functools.partial(method, **arguments), types)
        return self._graphs[key](*(tf.constant(list(side), tf.string) for side in sides.values()))

    def search(
        self,
        texts: Annotated[Tensor, "string (batch,)"],
        n_best: int = 1,
        prefixes: Annotated[Tensor, "string (batch,)"] | None = None,
        max_lengths: Annotated[Tensor, "int32 (batch,)"] | None = None,
        sampling: Sampling | None = None,
    ) -> Translations:
        """Searches translations; traced by `tf.function` here and for export.

        Args:
            texts: what to translate.
            n_best: int, at most the beam size. Defaults to 1.
            prefixes: what the translations begin with, see `translate`. Defaults to None: nothing.
            max_lengths: the most tokens of each translation, with its prefix and its end token, if that is fewer than
                without it; 0 for no such limit. Defaults to None: none has one.
            sampling: Sampling, for translations drawn at random. Defaults to None: they are searched.

        Returns:
            `Translations`.
        """
        source = self.reader.read_source(texts)
        max_length, max_extra = self.model.config.max_length, self.decoding.max_extra_tokens
        most = tf.minimum(tf.cast(source.token_ids.row_lengths(), tf.int32) + max_extra, max_length)
        limits = tf.where(tf.equal(tf.strings.strip(texts), ""), 0, most)
        if max_lengths is not None:
            limits = tf.where(max_lengths > 0, tf.minimum(limits, max_lengths), limits)
        prefix = None
        if prefixes is not None:
            prefix = self.reader.read_prefixes(prefixes, source)
            limits = tf.maximum(limits - tf.cast(prefix.row_lengths(), tf.int32), 0)
        if source.placeholders is not None:
            limits = tf.maximum(limits, self.reader.num_missing(source.placeholders, prefix))
        with self._read_weights():
            candidates = None if self.candidates is None else self.candidates.read()
            request = Request(source.token_ids, most, limits, prefix, source.placeholders, sampling, candidates)
            token_ids, scores = search_tokens(self.model, self.decoding, request, n_best)
        flat_ids = tf.reshape(token_ids, [-1, tf.shape(token_ids)[2]])
        ragged_ids = tf.RaggedTensor.from_tensor(flat_ids, padding=Tokenizer.pad_id)
        if prefix is not None:
            beginnings = tf.gather(prefix, tf.repeat(tf.range(prefix.nrows()), n_best))
            ragged_ids = tf.concat([beginnings, tf.cast(ragged_ids, beginnings.dtype)], axis=1)
        translations = self.reader.join(ragged_ids, source, n_best)
        return Translations(tf.reshape(translations, [-1, n_best]), scores, token_ids, source.lengths)

    def score(self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]) -> np.ndarray:
        """Computes the log probability of every target, including its end token, given its source.

        Args:
            sources: list of strings; each is truncated after `config.max_length` tokens.
            targets: list of strings, as many; each is truncated after `config.max_length` tokens.

        Returns:
            float32 (number of pairs,).

        Raises:
            ConfigError: The numbers differ.
        """
        return self.score_with_lengths(sources, targets).log_probs

    def score_with_lengths(self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]) -> Scores:
        """Computes the same as `score`, and also how many tokens every text has.

        Args and errors are those of `score`.
        """
        scores = self.score_tokens(sources, targets)
        return Scores(*map(np.asarray, (scores.log_probs, scores.source_lengths, scores.target_lengths)))

    def score_tokens(self, sources: Sequence[str | bytes], targets: Sequence[str | bytes]) -> TokenScores:
        """Computes the same as `score`, and the log probability of every token.

        Args and errors are those of `score`.

        Returns:
            `TokenScores` of NumPy arrays.
        """
        return TokenScores(*map(np.asarray, self._run(self.score_pairs, {"sources": sources, "targets": targets})))

    def score_pairs(
        self, sources: Annotated[Tensor, "string (batch,)"], targets: Annotated[Tensor, "string (batch,)"]
    ) -> TokenScores:
        """Computes what `score_tokens` does; traced by `tf.function` here and for export."""
        (source, source_lengths), (labels, target_lengths) = self.reader.read_pairs(sources, targets)
        with self._read_weights():
            log_probs = token_log_probs(cast(Transformer, self.model), source, labels)
        return TokenScores(tf.reduce_sum(log_probs, axis=1), log_probs, source_lengths, target_lengths)

    def align(
        self, sources: Sequence[str | bytes], targets: Sequence[str | bytes], layer: int = ALIGNMENT_LAYER
    ) -> list[Alignment]:
        """Finds which tokens of its source each token of a target comes from, by the attention of a decoder's layer.

        It is the mean of all heads, or, in the last layer of a model with guided alignment, that of the first.

        Args:
            sources: list of strings; each is truncated after `config.max_length` tokens.
            targets: list of strings, as many; each is truncated after `config.max_length` tokens.
            layer: int, an index of `model.decoder.layers`. Defaults to -1: the last.

        Raises:
            ConfigError: The numbers differ, or there is no such layer.
        """
        found = self._run(self.align_pairs, {"sources": sources, "targets": targets}, layer=layer)
        results = (found.source.pieces, found.target.pieces, found.positions, found.attention)
        pairs = []
        for source_pieces, target_pieces, positions, attention in zip(*map(np.asarray, results), strict=True):
            source, target = ([piece.decode() for piece in side if piece] for side in (source_pieces, target_pieces))
            pairs.append(
                Alignment(source, target, positions[: len(target)].tolist(), attention[: len(target), : len(source)])
            )
        return pairs

    def align_pairs(
        self,
        sources: Annotated[Tensor, "string (batch,)"],
        targets: Annotated[Tensor, "string (batch,)"],
        layer: int = ALIGNMENT_LAYER,
    ) -> Alignments:
        """Computes what `align` does; traced by `tf.function` here and for export."""
        num_layers = self.model.config.depths[1]
        require(-num_layers <= layer < num_layers, "layer", f"from {-num_layers} to {num_layers - 1}", layer)
        (source, source_lengths), (labels, target_lengths) = self.reader.read_pairs(sources, targets)
        with self._read_weights():
            is_guided = self.is_guided and layer in (ALIGNMENT_LAYER, num_layers - 1)
            head = GUIDED_HEAD if is_guided else None
            attention = source_attention(cast(Transformer, self.model), source, labels, layer, head)
        # A row of a text has an end token, so that no axis is empty unless there are no texts.
        positions = tf.argmax(tf.pad(attention, [[0, 0], [0, 0], [0, 1]]), axis=2, output_type=tf.int32)
        is_token = tf.sequence_mask(labels.row_lengths(), tf.shape(attention)[1])
        return Alignments(
            self._tokens("source", source, source_lengths),
            self._tokens("target", labels, target_lengths),
            tf.where(is_token, positions, -1),
            attention,
        )

    def encode(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Computes vectors by which similar texts can be found: the means of the encoder's outputs.

        Args:
            texts: list of strings; each is truncated after `config.max_length` tokens.

        Returns:
            float32 (number of texts, d_model).
        """
        return np.asarray(self._run(self.encode_texts, {"texts": texts}).vectors)

    def encode_texts(self, texts: Annotated[Tensor, "string (batch,)"]) -> Embeddings:
        """Computes what `encode` does; traced by `tf.function` here and for export."""
        source = self.reader.read_source(texts)
        with self._read_weights():
            return Embeddings(mean_encoding(cast(Transformer, self.model), source.token_ids), source.lengths)

    def tokenize(self, texts: Sequence[str | bytes]) -> list[list[str]]:
        """Returns the tokens of sources as the model reads them: truncated, with end tokens."""
        tokens = self._run(self.tokenize_texts, {"texts": texts})
        return [[piece.decode() for piece in row if piece] for row in np.asarray(tokens.pieces)]

    def tokenize_texts(self, texts: Annotated[Tensor, "string (batch,)"]) -> Tokens:
        """Splits sources into the tokens that the model reads; traced by `tf.function` here and for export."""
        source = self.reader.read_source(texts)
        return self._tokens("source", source.token_ids, source.lengths)

    def detokenize(self, token_ids: Annotated[Tensor, "int32 (batch, length)"]) -> Annotated[Tensor, "string (batch,)"]:
        """Joins tokens of the target language into texts; special ones and what is no id of the vocabulary are ignored.

        Args:
            token_ids: rows of ids, padded with 0.
        """
        return self.tokenizers.target.detokenize(tf.convert_to_tensor(token_ids, tf.int32))

    def _tokens(self, side: Side, token_ids: tf.RaggedTensor, lengths: Tensor) -> Tokens:
        pieces = token_ids.with_flat_values(getattr(self.tokenizers, side).id_to_piece(token_ids.flat_values))
        return Tokens(pieces.to_tensor(), token_ids.to_tensor(), lengths)

    def token_ids(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Returns sources as the model takes them: int32 (batch, length), truncated, with end tokens, padded with 0."""
        return self.reader.read_source(tf.constant(list(texts), tf.string)).token_ids.to_tensor().numpy()

    def num_tokens(self, texts: Sequence[str | bytes], side: Side = "source") -> np.ndarray:
        """Returns how many tokens every text has, including its end token, before it is truncated.

        Args:
            texts: list of strings.
            side: "source" or "target". Whose tokenizer counts. Defaults to "source".
        """
        return np.asarray(self.reader.num_tokens(tf.constant(list(texts), tf.string), side))


def _check_texts(texts: Sequence[str | bytes]) -> None:
    if isinstance(texts, (str, bytes)):
        raise ConfigError(f"texts must be a list of strings; received texts={shown(texts)}")


def _check_lengths(sides: dict[str, Sequence[str | bytes]]) -> None:
    if len({len(side) for side in sides.values()}) > 1:
        received = " and ".join(f"{len(side)} {name}" for name, side in sides.items())
        raise ConfigError(f"{' and '.join(sides)} must have the same length; received {received}")


def _graph_of(function: Callable[..., Any], types: list[Any]) -> Callable[..., Any]:
    # Looking for Python's control flow, of which there is none, would take most of the time of tracing.
    return tf.function(function, input_signature=types, autograph=False)
