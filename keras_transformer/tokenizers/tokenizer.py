"""Base class of all tokenizers, the WordPiece tokenizer, and pairs of tokenizers."""

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
from .normalization import LARGEST_SHRINKAGE, NormalForm, normalize_texts

# Three times the size of a vocabulary or SentencePiece model with a million pieces.
MAX_FILE_BYTES = 64 * 2**20
# Number of placeholders at the end of a vocabulary, see `placeholders.py`.
NUM_PLACEHOLDERS = 8
# WordPiece maps longer words, which are rare, to the unknown token.
_BYTES_PER_WORD = 100

Texts = Annotated[Tensor, "string (n,)"]
TokenIds = Annotated[tf.RaggedTensor, "int32 (n, None)"]


class Tokenizer(tf.Module):
    """Base class of tokenizers that run inside the TensorFlow graph.

    Subclasses implement `segment`, `join` and `load`, and define a `vocabulary` or override
    `id_to_piece`. A tokenizer is a `tf.Module`: if it is an attribute of an object that you save
    with `tf.saved_model.save`, the SavedModel contains the vocabulary.

    Args:
        reserved: piece of each id, or "" for ids that occur in segmented text.
        file_content: content of the tokenizer file.
        bytes_per_token: maximum number of bytes of normalized text per id.
        normalization: Unicode normalization of text before segmentation. Defaults to "none".

    Attributes:
        vocab_size: number of ids, including the four special ids.
        filename: name of the tokenizer file, with the content `file_content`, in a model directory.
        bytes_per_token: maximum number of bytes of text per id.
        tags: ids of the tags that may precede a source. Text is never segmented into tags.
        placeholder_ids: last ids of the vocabulary if it has placeholders (see `placeholders.py`),
            otherwise an empty range. They occur neither in segmented nor in decoded text.
        term_ids: ids before `placeholder_ids` if the vocabulary supports terms (see `terms.py`),
            otherwise an empty range. In a source, they precede a term, separate it from its
            translation, and follow the translation. They occur neither in segmented nor in decoded
            text.
        space_in_front: space that is added before text that is not empty, and removed when tokens
            are joined.
        space_behind: space that is removed from the end of joined text.
        is_random: whether segmentation is random, so that results depend on earlier calls.
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
        normalization: NormalForm = "none",
    ) -> None:
        super().__init__()
        self.vocab_size = len(reserved)
        self.file_content = file_content
        self.normalization = normalization
        self.bytes_per_token = bytes_per_token
        if normalization != "none":
            self.bytes_per_token *= LARGEST_SHRINKAGE
        tags = {piece: token_id for token_id, piece in enumerate(reserved) if is_tag(piece)}
        # TensorFlow would track a dict.
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
        """Cuts texts that have too many bytes for `num_tokens` tokens.

        A cut text keeps about `num_tokens * bytes_per_token` bytes and ends with a whole character.
        It has at least `num_tokens` tokens, unless the tokenizer drops many spaces or maps many
        bytes to one unknown token.

        Returns:
            A tuple of the texts and a mask of the texts that were cut. Texts with at most
            `num_tokens` tokens are not cut.
        """
        max_bytes = num_tokens * self.bytes_per_token
        is_cut = tf.strings.length(texts) > max_bytes
        cut = tf.strings.substr(texts, 0, max_bytes)
        cut = tf.strings.unicode_transcode(cut, "UTF-8", "UTF-8", errors="replace")
        # Remove the bytes of a split character.
        cut = tf.strings.regex_replace(cut, "\ufffd{1,3}$", "")
        return tf.where(is_cut, cut, texts), is_cut

    def tokenize(self, texts: Texts | Sequence[str | bytes]) -> TokenIds:
        """Segments texts into subword ids, without start and end ids. An empty text has no ids.

        Bytes that are not valid UTF-8 are replaced by U+FFFD.
        """
        valid_texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        return self.segment(self.in_front(self.normalized(valid_texts)))

    def normalized(
        self, texts: Annotated[Tensor, "string, of any shape"]
    ) -> Annotated[Tensor, "string, of the same shape"]:
        """Normalizes texts, which must be valid UTF-8, in the same way as the training text."""
        return normalize_texts(texts, self.normalization)

    def in_front(self, texts: Texts) -> Texts:
        """Adds `space_in_front` to texts that are not empty."""
        if not self.space_in_front:
            return texts
        return tf.where(tf.equal(texts, ""), texts, self.space_in_front + texts)

    def detokenize(self, token_ids: Annotated[Tensor, "int32 (n, None)"]) -> Texts:
        """Joins subword ids into texts, which are always valid UTF-8.

        Special ids, placeholders, term ids and ids outside of the vocabulary are ignored.
        """
        in_vocabulary = (token_ids > self.end_id) & (token_ids < self.term_ids.start)
        return self.without_spaces(self.join(tf.ragged.boolean_mask(token_ids, in_vocabulary)))

    def without_spaces(self, texts: Texts) -> Texts:
        """Removes `space_in_front` and `space_behind` from texts."""
        return tf.strings.regex_replace(texts, f"^{self.space_in_front}|{self.space_behind}$", "")

    def segment(self, parts: Texts) -> TokenIds:
        """Segments parts of texts, which must be valid UTF-8 and normalized, into subword ids.

        This method does not add `space_in_front`.
        """
        raise NotImplementedError

    def join(self, token_ids: TokenIds) -> Texts:
        """Joins subword ids into parts of texts, which keep `space_in_front`.

        The ids must not include special ids or placeholders.
        """
        raise NotImplementedError

    def unknown_ids(self) -> list[int]:
        """Returns the ids for text that has no pieces in the vocabulary."""
        return [self.unk_id]

    def id_to_piece(
        self, token_ids: Annotated[Tensor, "int32 (n,)"]
    ) -> Annotated[tf.Tensor, "string (n,)"]:
        """Looks up the pieces of ids, including special ids, inside the graph."""
        return tf.gather(tf.constant(self.vocabulary), token_ids)

    def pieces(self, token_ids: Iterable[int]) -> list[str]:
        """Returns the pieces of token ids as strings, for display."""
        pieces = self.id_to_piece(tf.constant(list(token_ids), tf.int32))
        return [piece.decode() for piece in pieces.numpy()]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the tokenizer file atomically, with its checksum."""
        with replacing_with_checksum(path) as temporary:
            temporary.write_bytes(self.file_content)

    @classmethod
    def filenames(cls, is_shared: bool) -> tuple[str, ...]:
        """Returns the file names in a model directory: a shared file, or a file per language."""
        if is_shared:
            return (cls.filename,)
        return (f"source.{cls.filename}", f"target.{cls.filename}")

    @classmethod
    def load(cls, path: str | os.PathLike[str], normalization: NormalForm = "none") -> "Tokenizer":
        """Loads a tokenizer from a file that `save` has written."""
        raise NotImplementedError


class WordPieceTokenizer(Tokenizer):
    """Cased WordPiece tokenizer of BERT.

    It splits text into words and punctuation marks, and these into the longest matching pieces.
    Spacing is lost: `detokenize` separates words and marks with a single space ("Don ' t stop .").
    Words that the vocabulary cannot spell are mapped to the unknown id, and `detokenize` drops
    them.

    Args:
        vocabulary: pieces in the order of their ids, starting with "[PAD]", "[UNK]", "[START]" and
            "[END]". Pieces that continue a word start with "##".
        normalization: "nfc", "nfkc" or "none". Unicode normalization of text before segmentation.
            Defaults to "none".

    Raises:
        ConfigError: If the vocabulary does not start with the four special pieces, or WordPiece
            does not accept it.

    Example:
        >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[START]", "[END]", "dog", "##s"])
        >>> tokenizer.tokenize(["dogs dog"])
        <tf.RaggedTensor [[4, 5, 4]]>
    """

    filename = "vocab.txt"
    special_pieces = ("[PAD]", "[UNK]", "[START]", "[END]")
    # Words end at punctuation marks, so no word of a text can match these pieces.
    placeholder_pieces = tuple(f"[PH{number}]" for number in range(1, NUM_PLACEHOLDERS + 1))
    term_pieces = ("[TERM]", "[TRANSLATION]", "[/TERM]")
    space_in_front = space_behind = " "

    def __init__(self, vocabulary: Sequence[str], normalization: NormalForm = "none") -> None:
        special = tuple(vocabulary[:4])
        rule = f"a list that begins with {', '.join(self.special_pieces)}"
        require(special == self.special_pieces, "vocabulary", rule, special)
        file_content = "".join(piece + "\n" for piece in vocabulary).encode()
        longest = max(len(piece.encode()) for piece in vocabulary)
        # All pieces can be reserved: text is split at brackets, so it never contains reserved
        # pieces.
        super().__init__(vocabulary, file_content, max(longest, _BYTES_PER_WORD), normalization)
        self.vocabulary = tuple(vocabulary)
        try:
            self._subwords = FastBertTokenizer(
                list(vocabulary), token_out_type=tf.int32, support_detokenization=True
            )
        except RuntimeError as error:
            # For example, if a piece occurs twice.
            raise ConfigError(
                f"WordPiece cannot use the vocabulary ({str(error).splitlines()[0]})"
            ) from None

    def segment(self, parts: Tensor) -> tf.RaggedTensor:
        return self._subwords.tokenize(parts)

    def join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        # Add spaces to separate words from placeholder spans.
        parts = self._subwords.detokenize(token_ids)
        return tf.where(tf.equal(parts, ""), "", tf.strings.join([" ", parts, " "]))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], normalization: NormalForm = "none"
    ) -> "WordPieceTokenizer":
        # `splitlines()` would also split at characters that a piece may contain.
        text = read_limited(path, MAX_FILE_BYTES).decode()
        return cls(text.removesuffix("\n").split("\n"), normalization)


class TokenizerPair(NamedTuple):
    """Source and target tokenizer of a translator, the same object if they are shared."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def of(cls, tokenizers: "Tokenizer | TokenizerPair") -> "TokenizerPair":
        """Returns a pair unchanged, or makes a pair from a tokenizer that both languages share."""
        return cls(tokenizers, tokenizers) if isinstance(tokenizers, Tokenizer) else tokenizers

    @property
    def is_shared(self) -> bool:
        return self.source is self.target

    def files(self) -> dict[str, Tokenizer]:
        """Returns a dict that maps file names in a model directory to tokenizers."""
        tokenizers = (self.target,) if self.is_shared else self
        return dict(zip(self.target.filenames(self.is_shared), tokenizers, strict=True))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the tokenizer files to a model directory atomically, with their checksums."""
        for name, tokenizer in self.files().items():
            tokenizer.save(pathlib.Path(directory, name))
