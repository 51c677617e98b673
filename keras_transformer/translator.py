"""Text to text: a model, its tokenizer and a search in one TensorFlow graph."""

import functools

import keras
import numpy as np
import tensorflow as tf

from .config import PRECISIONS, ConfigError, require_one_of
from .decoding import beam_search, greedy_search
from .losses import token_crossentropy
from .model_dir import ModelDir
from .tokenizers import load_tokenizer

# Tokens, padding included, of a batch that is searched or scored; with the next, bounds memory.
_TOKENS_PER_BATCH = 4096
# Batches that may be searched side by side. Most operations of a search are too small to be shared among cores.
SEARCHES_AT_ONCE = 4
# So texts are searched in two batches at least, but not in smaller ones than of so many.
_TEXTS_WORTH_A_SEARCH = 16


class Translator:
    """Translates texts with a trained model (section 6.1 of the paper).

    A source is cut after `config.max_length` tokens, its end token included. An empty text, or one of spaces alone,
    has the empty translation.

    TensorFlow forgets the SentencePiece models it holds when a seed is set (`keras.utils.set_random_seed`): set seeds
    before loading.

    Args:
        model: a `Transformer`.
        tokenizer: of `keras_transformer.tokenizers`.
        decoding: a `DecodingConfig`.

    Example:
        >>> translator = Translator.load("models/en-de")
        >>> translator(["A dog runs."])
        ['Ein Hund rennt.']
    """

    def __init__(self, model, tokenizer, decoding):
        if tokenizer.vocab_size != model.config.target_vocab_size:
            raise ConfigError(
                f"the tokenizer must have the model's {model.config.target_vocab_size} tokens; "
                f"received one of {tokenizer.vocab_size}"
            )
        self.model = model
        self.tokenizer = tokenizer
        self.decoding = decoding
        self._graphs = {}

    @classmethod
    def load(cls, model_dir, decoding=None, precision="float32"):
        """The translator of a model directory.

        Args:
            model_dir: its path.
            decoding: a `DecodingConfig`; the directory's own if None.
            precision: "float32", or "bfloat16" for weights of half the size, and more speed where the processor
                multiplies such numbers. They have two to three digits: another translation may win by a narrow margin.

        Raises:
            ConfigError: the directory is none, or has no trained weights yet; the precision is another.
        """
        require_one_of("precision", precision, PRECISIONS)
        model_dir = ModelDir(model_dir)
        _, _, own_decoding, _ = model_dir.read_config()
        return cls(model_dir.load_model(precision), load_tokenizer(model_dir.path), decoding or own_decoding)

    def __call__(self, texts):
        """The best translation of every text, as a list of strings."""
        return [best[0][0] for best in self.n_best(texts, 1)]

    def n_best(self, texts, n):
        """The `n` best translations of every text.

        Args:
            texts: a list of strings, or of their UTF-8 bytes; what is not UTF-8 is read as U+FFFD.
            n: at most the beam size.

        Returns:
            For every text a list of `(translation, score)`, the best first; the score is `search`'s.
        """
        if isinstance(texts, (str, bytes)):
            raise ValueError(f"texts must be a list of strings; received the string {texts!r}")
        if not 1 <= n <= self.decoding.beam_size:
            raise ValueError(
                f"n must be from 1 to the beam size {self.decoding.beam_size}; received {n}"
            )
        if n not in self._graphs:
            signature = [tf.TensorSpec([None], tf.string)]
            search = functools.partial(self.search, n_best=n)
            # Nothing here is Python's control flow, and looking for it takes longer than all else of the tracing.
            self._graphs[n] = tf.function(search, input_signature=signature, autograph=False)
        found, scores = self._graphs[n](tf.constant(list(texts), tf.string))
        return [
            [(text.decode("utf-8"), float(score)) for text, score in zip(*row)]
            for row in zip(found.numpy(), scores.numpy())
        ]

    def search(self, texts, n_best=1):
        """The search as a graph: what `tf.function` traces, here and for export.

        Texts are ordered by length and searched in batches of like length, so that one long text does not make all
        others pay for its padding.

        Args:
            texts: string (batch,).
            n_best: how many translations of each, at most the beam size.

        Returns:
            Translations, string (batch, n_best), and their scores, float32 (batch, n_best): log probability divided
            by `((5 + length) / 6) ** length_penalty`; with a beam of 1, the log probability.
        """
        # The weights are read here: a loop that reads variables is not run side by side with another.
        weights = [(variable, tf.identity(variable.value)) for variable in self.model.variables]
        with keras.StatelessScope(state_mapping=weights):
            return self._search(texts, n_best)

    def _search(self, texts, n_best):
        source = self._ids_with_end(texts)
        lengths = tf.cast(source.row_lengths(), tf.int32)
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)
        num_texts = tf.size(order)
        is_blank = tf.equal(tf.strings.strip(texts), "")
        limits = tf.minimum(
            lengths + self.decoding.max_extra_tokens, self.model.config.max_length
        )
        limits = tf.where(is_blank, 0, limits)
        width = tf.reduce_max(tf.concat([limits, [1]], 0))
        most_texts = tf.maximum((num_texts + 1) // 2, _TEXTS_WORTH_A_SEARCH)
        step = functools.partial(self.model.decode_step, grow=True, output_kernel=self.model.output_kernel())

        def search_batch(begin, token_ids, scores):
            longest = tf.minimum(
                lengths[order[begin]] + self.decoding.max_extra_tokens, self.model.config.max_length
            )
            size = tf.clip_by_value(_TOKENS_PER_BATCH // longest, 1, most_texts)
            end = tf.minimum(begin + size, num_texts)
            rows = order[begin:end]
            found = self._search_ids(
                step, tf.gather(source, rows).to_tensor(), tf.gather(limits, rows), n_best
            )
            padding = [[0, 0], [0, 0], [0, width - tf.shape(found.token_ids)[2]]]
            at = rows[:, None]
            return (
                end,
                tf.tensor_scatter_nd_update(token_ids, at, tf.pad(found.token_ids, padding)),
                tf.tensor_scatter_nd_update(scores, at, found.scores),
            )

        _, token_ids, scores = tf.while_loop(
            lambda begin, *_: begin < num_texts,
            search_batch,
            (
                tf.constant(0),
                tf.zeros([num_texts, n_best, width], tf.int32),
                tf.zeros([num_texts, n_best]),
            ),
            parallel_iterations=SEARCHES_AT_ONCE,
        )
        flat_ids = tf.reshape(token_ids, [-1, width])
        translations = self.tokenizer.detokenize(
            tf.RaggedTensor.from_tensor(flat_ids, padding=self.tokenizer.pad_id)
        )
        return tf.reshape(translations, [-1, n_best]), scores

    def score(self, sources, targets):
        """The log probability of every target, its end token included, given its source.

        Args:
            sources, targets: lists of strings, equally many. Both are cut after `config.max_length` tokens.

        Returns:
            float32 (number of pairs,).
        """
        if len(sources) != len(targets):
            raise ValueError(
                f"sources and targets must be equally many; received {len(sources)} and {len(targets)}"
            )
        scores = np.zeros(len(sources), "float32")
        source = self._ids_with_end(tf.constant(list(sources), tf.string))
        labels = self._ids_with_end(tf.constant(list(targets), tf.string))
        lengths = np.maximum(source.row_lengths().numpy(), labels.row_lengths().numpy())
        order = np.argsort(lengths, kind="stable")[::-1]
        begin = 0
        while begin < len(order):
            rows = order[begin : begin + max(_TOKENS_PER_BATCH // lengths[order[begin]], 1)]
            scores[rows] = self._score_ids(
                tf.gather(source, rows).to_tensor(), tf.gather(labels, rows).to_tensor()
            )
            begin += len(rows)
        return scores

    def token_ids(self, texts):
        """Token ids of texts as the model takes them: int32 (batch, length), cut, with end tokens, padded with 0."""
        return self._ids_with_end(tf.constant(list(texts), tf.string)).to_tensor().numpy()

    def num_tokens(self, texts):
        """How many tokens every text has, its end token included, before it is cut."""
        return self.tokenizer.tokenize(tf.constant(list(texts), tf.string)).row_lengths().numpy() + 1

    def _ids_with_end(self, texts):
        token_ids = self.tokenizer.tokenize(texts)[:, : self.model.config.max_length - 1]
        ends = tf.fill([token_ids.nrows(), 1], self.tokenizer.end_id)
        return tf.concat([token_ids, ends], axis=1)

    def _search_ids(self, step, source, limits, n_best):
        max_length = tf.reduce_max(limits)
        # Room for nothing, in a tensor whose shape is not known when the loop is traced.
        state = self.model.init_state(source, self.decoding.beam_size, tf.minimum(max_length, 0))
        arguments = dict(
            max_length=max_length,
            start_id=self.tokenizer.start_id,
            end_id=self.tokenizer.end_id,
            drop_done=True,
        )
        if self.decoding.beam_size == 1:
            return greedy_search(step, state, limits, **arguments)
        return beam_search(
            step,
            state,
            limits,
            beam_size=self.decoding.beam_size,
            length_penalty=self.decoding.length_penalty,
            n_best=n_best,
            **arguments,
        )

    @functools.cached_property
    def _score_ids(self):
        token_ids = tf.TensorSpec([None, None], tf.int32)

        @tf.function(input_signature=[token_ids, token_ids], autograph=False)
        def score_ids(source, labels):
            starts = tf.fill([tf.shape(labels)[0], 1], self.tokenizer.start_id)
            target = tf.concat([starts, labels[:, :-1]], axis=1)
            logits = self.model({"source": source, "target": target}, training=False)
            is_token = tf.not_equal(labels, self.tokenizer.pad_id)
            return -tf.reduce_sum(
                tf.where(is_token, token_crossentropy(labels, logits), 0.0), axis=1
            )

        return score_ids
