"""The base class of all tokenizers, WordPiece, and the pair of tokenizers of a translator."""

import os
import pathlib
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import tensorflow as tf
from tensorflow_text import FastBertTokenizer

from ..checks import require
from ..config.values import is_tag
from ..errors import ConfigError
from ..model_dir.files import read_limited, replacing_with_checksum
from ..tensors import Tensor
from .normalization import LARGEST_SHRINKAGE, Normalization, normalize_texts

# A vocabulary or SentencePiece model of a million pieces takes a third of it.
MAX_FILE_BYTES = 64 * 2**20
# How many pieces a vocabulary ends with that stand for parts of a text, see `placeholders.py`.
NUM_PLACEHOLDERS = 8
# Longer words are always unknown to WordPiece; few words are that long.
_BYTES_PER_WORD = 100

Texts = Annotated[Tensor, "string (n,)"]
TokenIds = Annotated[tf.RaggedTensor, "int32 (n, None)"]


class Tokenizer(tf.Module):
    """Text to subword ids and back, inside the TensorFlow graph.

    A subclass implements `segment`, `join` and `load`, and has a `vocabulary` or its own
    `id_to_piece`. As a `tf.Module`, a tokenizer can be an attribute of what is passed to
    `tf.saved_model.save`, which then saves the vocabulary too.

    Args:
        reserved: the piece of each id; "" for those that texts are segmented into.
        normalization: the normal form of Unicode into which texts are brought first.

    Attributes:
        vocab_size: number of ids, including the four special ones.
        filename: of the tokenizer's file, whose content is `file_content`, in a model directory.
        bytes_per_token: the most bytes of a text that one id stands for.
        tags: the ids of the tags that may stand in front of a source. No text is split into them.
        placeholder_ids: the last ids of the vocabulary, which no text is segmented into and no text
            is made of, if it has them: see `placeholders.py`.
        term_ids: the ids before these, in a source before a term, between it and its translation,
            and behind that, if the vocabulary has them: see `terms.py`. Text is neither segmented
            into them nor made of them.
        space_in_front: put in front of a text that is not empty before it is segmented, and removed
            when it is joined.
        space_behind: removed from the end of a text when it is joined.
        is_random: whether a text may be split in another way each time; calls then depend on those
            before them.
    """

    pad_id, unk_id, start_id, end_id = 0, 1, 2, 3
    filename: str
    vocabulary: tuple[str, ...]
    placeholder_pieces: tuple[str, ...] = ()
    term_pieces: tuple[str, ...] = ()
    space_in_front = space_behind = ""
    is_random = False

    def __init__(
        self,
        reserved: Sequence[str],
        file_content: bytes,
        bytes_per_token: int,
        normalization: Normalization = "none",
    ) -> None:
        super().__init__()
        self.vocab_size = len(reserved)
        self.file_content = file_content
        self.normalization = normalization
        self.bytes_per_token = bytes_per_token
        if normalization != "none":
            self.bytes_per_token *= LARGEST_SHRINKAGE
        tags = {piece: token_id for token_id, piece in enumerate(reserved) if is_tag(piece)}
        # Not a dict, which TensorFlow would track.
        self.tags = types.MappingProxyType(tags)

        def ids_before(end: int, names: tuple[str, ...]) -> range:
            begin = end - len(names)
            if tuple(reserved[max(begin, 0) : end]) == names:
                return range(begin, end)
            return range(end, end)

        self.placeholder_ids = ids_before(self.vocab_size, self.placeholder_pieces)
        self.term_ids = ids_before(self.placeholder_ids.start, self.term_pieces)

    def shorten(
        self, texts: Texts, num_tokens: int
    ) -> tuple[Texts, Annotated[tf.Tensor, "bool (n,)"]]:
        """Cuts texts by their bytes if they need more than a number of tokens.

        A text that is cut keeps about `num_tokens * bytes_per_token` bytes, which are whole
        characters, and at least `num_tokens` tokens. It may be fewer tokens if many bytes are
        spaces that a tokenizer drops, or one unknown token.

        Returns:
            The texts, and which of them were cut; none of at most `num_tokens` tokens.
        """
        max_bytes = num_tokens * self.bytes_per_token
        is_cut = tf.strings.length(texts) > max_bytes
        cut = tf.strings.substr(texts, 0, max_bytes)
        cut = tf.strings.unicode_transcode(cut, "UTF-8", "UTF-8", errors="replace")
        # Remove the bytes of a character that was cut in two.
        cut = tf.strings.regex_replace(cut, "\ufffd{1,3}$", "")
        return tf.where(is_cut, cut, texts), is_cut

    def tokenize(self, texts: Texts | Sequence[str | bytes]) -> TokenIds:
        """Splits texts into subword ids, without start and end ids; an empty text has none.

        Bytes that are not UTF-8 are read as U+FFFD.
        """
        valid_texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        return self.segment(self.in_front(self.normalized(valid_texts)))

    def normalized(
        self, texts: Annotated[Tensor, "string, of any shape"]
    ) -> Annotated[Tensor, "string, of the same shape"]:
        """Returns texts, in valid UTF-8, in the normal form of the training text."""
        return normalize_texts(texts, self.normalization)

    def in_front(self, texts: Texts) -> Texts:
        """Returns texts with `space_in_front`, except empty ones."""
        if not self.space_in_front:
            return texts
        return tf.where(tf.equal(texts, ""), texts, self.space_in_front + texts)

    def detokenize(self, token_ids: Annotated[Tensor, "int32 (n, None)"]) -> Texts:
        """Joins subword ids into texts, always valid UTF-8.

        Special ids, placeholders, those of terms and unknown ids are ignored.
        """
        in_vocabulary = (token_ids > self.end_id) & (token_ids < self.term_ids.start)
        return self.without_spaces(self.join(tf.ragged.boolean_mask(token_ids, in_vocabulary)))

    def without_spaces(self, texts: Texts) -> Texts:
        """Returns texts without `space_in_front` and `space_behind`."""
        return tf.strings.regex_replace(texts, f"^{self.space_in_front}|{self.space_behind}$", "")

    def segment(self, parts: Texts) -> TokenIds:
        """Splits parts of texts, in valid UTF-8 and normalized, into subword ids.

        No space is put in front.
        """
        raise NotImplementedError

    def join(self, token_ids: TokenIds) -> Texts:
        """Joins subword ids into parts of texts, which still have `space_in_front`.

        There are no special ids and no placeholders among them.
        """
        raise NotImplementedError

    def unknown_ids(self) -> list[int]:
        """Returns the ids of text that the vocabulary has no pieces for."""
        return [self.unk_id]

    def id_to_piece(
        self, token_ids: Annotated[Tensor, "int32 (n,)"]
    ) -> Annotated[tf.Tensor, "string (n,)"]:
        """Looks up the subwords of ids of the vocabulary, special ones too, in the graph."""
        return tf.gather(tf.constant(self.vocabulary), token_ids)

    def pieces(self, token_ids: Iterable[int]) -> list[str]:
        """Returns the subwords of one sentence's ids, as text to show."""
        pieces = self.id_to_piece(tf.constant(list(token_ids), tf.int32))
        return [piece.decode() for piece in pieces.numpy()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the tokenizer's file, whole or not at all, and its checksum."""
        with replacing_with_checksum(path) as temporary:
            temporary.write_bytes(self.file_content)

    @classmethod
    def filenames(cls, is_shared: bool) -> tuple[str, ...]:
        """Returns the names of the files in a model directory: one, or one for each language."""
        if is_shared:
            return (cls.filename,)
        return (f"source.{cls.filename}", f"target.{cls.filename}")

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], normalization: Normalization = "none"
    ) -> "Tokenizer":
        """Reads a file that `save` wrote."""
        raise NotImplementedError


class WordPieceTokenizer(Tokenizer):
    """BERT's WordPiece, cased: words and punctuation marks, segmented into the longest pieces.

    It loses spacing: `detokenize` puts one space between words and marks ("Don ' t stop ."). A word
    that the vocabulary cannot spell becomes one unknown id, and is missing after `detokenize`.

    Args:
        vocabulary: the pieces in the order of their ids, "[PAD]", "[UNK]", "[START]", "[END]"
            first; a piece that continues a word begins with "##".
        normalization: "nfc", "nfkc" or "none". The normal form into which texts are brought first.
            Defaults to "none".

    Raises:
        ConfigError: The vocabulary does not begin with the four special pieces, or WordPiece cannot
            use it.

    Example:
        >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[START]", "[END]", "dog", "##s"])
        >>> tokenizer.tokenize(["dogs dog"])
        <tf.RaggedTensor [[4, 5, 4]]>
    """

    filename = "vocab.txt"
    special_pieces = ("[PAD]", "[UNK]", "[START]", "[END]")
    # In brackets, like the special tokens, so that no word of a text is one: words end at
    # punctuation marks.
    placeholder_pieces = tuple(f"[PH{number}]" for number in range(1, NUM_PLACEHOLDERS + 1))
    term_pieces = ("[TERM]", "[TRANSLATION]", "[/TERM]")
    space_in_front = space_behind = " "

    def __init__(self, vocabulary: Sequence[str], normalization: Normalization = "none") -> None:
        special = tuple(vocabulary[:4])
        rule = f"a list that begins with {', '.join(self.special_pieces)}"
        require(special == self.special_pieces, "vocabulary", rule, special)
        file_content = "".join(piece + "\n" for piece in vocabulary).encode()
        longest = max(len(piece.encode()) for piece in vocabulary)
        # Pieces that texts are segmented into are unlike reserved ones: a text is split at
        # brackets.
        super().__init__(vocabulary, file_content, max(longest, _BYTES_PER_WORD), normalization)
        self.vocabulary = tuple(vocabulary)
        try:
            self._subwords = FastBertTokenizer(
                list(vocabulary), token_out_type=tf.int32, support_detokenization=True
            )
        except RuntimeError as error:
            # For example, a piece occurs twice.
            raise ConfigError(
                f"WordPiece cannot use the vocabulary ({str(error).splitlines()[0]})"
            ) from None

    def segment(self, parts: Tensor) -> tf.RaggedTensor:
        return self._subwords.tokenize(parts)

    def join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        # Also put one space between words and what stays as it is.
        parts = self._subwords.detokenize(token_ids)
        return tf.where(tf.equal(parts, ""), "", tf.strings.join([" ", parts, " "]))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], normalization: Normalization = "none"
    ) -> "WordPieceTokenizer":
        # Not splitlines(), which also splits at characters that a piece may contain.
        text = read_limited(path, MAX_FILE_BYTES).decode()
        return cls(text.removesuffix("\n").split("\n"), normalization)


class TokenizerPair(NamedTuple):
    """The tokenizers of a translator: the same object twice if the languages share one."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def of(cls, tokenizers: "Tokenizer | TokenizerPair") -> "TokenizerPair":
        """Returns a pair as it is, and a single tokenizer as the one that both languages share."""
        return cls(tokenizers, tokenizers) if isinstance(tokenizers, Tokenizer) else tokenizers

    @property
    def is_shared(self) -> bool:
        return self.source is self.target

    def files(self) -> dict[str, Tokenizer]:
        """Returns each tokenizer by the name that its file has in a model directory."""
        tokenizers = (self.target,) if self.is_shared else self
        return dict(zip(self.target.filenames(self.is_shared), tokenizers, strict=True))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the files of a model directory, each whole or not at all, with its checksum."""
        for name, tokenizer in self.files().items():
            tokenizer.save(pathlib.Path(directory, name))
