"""Adversarial texts for one signature of a SavedModel, in a session as in TensorFlow Serving.

They are drawn at random, and are the same for the same seed.
"""

import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.processes import Report

TEXTS_PER_REQUEST = 32
# Asked with every request of hostile texts; its answer must stay the same.
NEIGHBOUR = b"A dog runs."
# A signature and its inputs by name, to its outputs by name.
Predict = Callable[[str, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


_SENTENCES = [
    "A man is standing on a ladder.",
    "Zwei Hunde laufen im Schnee!",
    "她买了两个苹果。",
    "Où est-il?",
]
_SPECIAL = [
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "<0x00>",
    "<0x0A>",
    "<0xFF>",
    ">>de<<",
    "[MASK]",
    "##ing",
    # Marks of tokenizers and of the division into sentences.
    "\u2581",
    "\u241b",
    "\u241b_",
    "\u241b.",
    "\ufdd0",
    "\ufdd0d",
    "\ufdd0n",
    # Byte order marks, the replacement character, and a character of private use.
    "\ufeff",
    "\ufffd",
    "\ufffe",
    "\ue000",
]
_RIGHT_TO_LEFT = "אבגשלום مرحبا٣٤؟،؛\u200f\u202e\u2067\u2069\u061c\u200b\u200d"
_COMBINING = "\u0301\u0323\u0337\u20dd\u0e34\u3099\ufe0f"
_SPACES = " \t\n\r\v\f\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000"
_PUNCTUATION = ".,;:!?…。！？、؟।\"'“”„«»()[]–—-%&/\\$^*+|{}"
# Parts of lines that are a megabyte long.
_REPEATED = [
    "dog runs ",
    "x",
    "\U0001f9ff",
    " ",
    "\n",
    ". ",
    "A. ",
    "a, ",
    "。",
    "\u0301",
    "\0",
    "\u2581",
    "</s>",
    "\xe9",
]
_LONG = 1_000_000


class BrokenError(Exception):
    """An answer that is not as it must be."""


def fuzz(
    predict: Predict, name: str, num_texts: int, seed: int = 0, long_share: float = 0.001
) -> Report:
    """Sends hostile texts, and checks the answers.

    It checks their sizes, UTF-8, finite numbers, and whether texts of a megabyte are truncated. An
    ordinary text beside the others must be answered as if it was alone.

    Args:
        predict: calls a signature.
        name: name of the signature.
        num_texts: int. How many hostile texts to send.
        seed: int. Of the texts. Defaults to 0.
        long_share: float. The share of texts of a megabyte. Defaults to 0.001.

    Returns:
        A report: the `value` is the time of the slowest request, in seconds.

    Raises:
        BrokenError: An answer is wrong.
    """
    texts = hostile_texts(num_texts, seed, long_share)
    rng = random.Random(seed)
    alone = _first_row(predict(name, _inputs(name, [NEIGHBOUR], rng)))
    memory_before = _peak_memory()
    seconds = []
    num_truncated = 0
    for begin in range(0, num_texts, TEXTS_PER_REQUEST - 1):
        request = [NEIGHBOUR, *texts[begin : begin + TEXTS_PER_REQUEST - 1]]
        inputs = _inputs(name, request, rng)
        start = time.perf_counter()
        outputs = predict(name, inputs)
        seconds.append(time.perf_counter() - start)
        try:
            _check(outputs, alone, request)
        except BrokenError as error:
            raise BrokenError(f"{name}: texts from {begin}: {error}") from None
        num_truncated += int(sum(outputs.get("truncated", ())))
    return {
        "value": max(seconds),
        "median": statistics.median(seconds),
        "texts_per_second": num_texts / sum(seconds),
        "megabytes": _peak_memory() - memory_before,
        "truncated": num_truncated,
    }


def _inputs(name: str, texts: list[bytes], rng: random.Random) -> dict[str, np.ndarray]:
    strings = np.array([*texts, None], object)[:-1]
    if name in ("detokenize", "translate_tokens"):
        edges = [*range(-2, 12), 2**31 - 1, -(2**31)]
        rows = [
            [rng.choice(edges) if rng.random() < 0.5 else rng.randrange(10_000) for _ in range(20)]
            for _ in texts
        ]
        return {"token_id": np.array([list(range(4, 24)), *rows[1:]], "int32")}
    if name in ("score", "align"):
        # The first is an ordinary pair.
        return {"source": strings, "target": np.concatenate([strings[:1], strings[:0:-1]])}
    if name == "translate_with_prefix":
        # Cut wherever it is, also within a character.
        prefixes = [b"", *(text[: rng.randrange(40)] for text in texts[1:])]
        max_lengths = [0, *(rng.choice([0, 0, 1, 7, -1, 2**31 - 1, -(2**31)]) for _ in texts[1:])]
        return {
            "text": strings,
            "prefix": np.array([*prefixes, None], object)[:-1],
            "max_length": np.array(max_lengths, "int32"),
        }
    return {"text": strings}


def _check(
    outputs: Mapping[str, np.ndarray], alone: Mapping[str, np.ndarray], request: list[bytes]
) -> None:
    for key, array in outputs.items():
        if len(array) != len(request):
            raise BrokenError(f"{key} has {len(array)} rows for {len(request)} texts")
        if array.dtype == object:
            _check_utf8(key, array)
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BrokenError(f"{key} is not finite")
    for key, row in _first_row(outputs).items():
        if not _is_same(row, alone[key]):
            raise BrokenError(f"{key} of an ordinary text is {row}, alone {alone[key]}")
    for text, truncated in zip(request, outputs.get("truncated", ())):
        if len(text) > 500_000 and "source_length" in outputs and not truncated:
            raise BrokenError(f"a text of {len(text):,} bytes, {text[:10]!r}, is not truncated")


def _check_utf8(key: str, array: np.ndarray) -> None:
    for text in array.ravel():
        try:
            text.decode()
        except UnicodeDecodeError:
            raise BrokenError(f"{key} is not UTF-8: {text!r}") from None


def _first_row(outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is said of the first text, without padding."""
    return {key: _unpadded(array[0]) for key, array in outputs.items()}


def _unpadded(row: Any) -> np.ndarray:
    row = np.asarray(row)
    kept = (row != b"") & (row != 0) & (row != -1)
    return row[kept] if row.ndim else row


def _is_same(row: np.ndarray, expected: np.ndarray) -> bool:
    if row.dtype.kind == "f":
        return row.shape == expected.shape and np.allclose(row, expected, rtol=1e-4, atol=1e-4)
    return np.array_equal(row, expected)


def _peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def hostile_texts(number: int, seed: int, long_share: float = 0.001) -> list[bytes]:
    """Draws texts, most of which are not UTF-8, not of any language, or very long.

    Args:
        number: int. How many.
        seed: int. The only source of randomness.
        long_share: float. The share of texts of a megabyte. Defaults to 0.001.
    """
    rng = random.Random(seed)
    texts = []
    for _ in range(number):
        if rng.random() < long_share:
            texts.append(_long(rng))
        else:
            num_parts = rng.randint(1, 3)
            texts.append(b"".join(rng.choice(_KINDS)(rng) for _ in range(num_parts)))
    return texts


def _any_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(100))


def _ordinary(rng: random.Random) -> bytes:
    return rng.choice(_SENTENCES).encode() * rng.randrange(4)


def _damaged(rng: random.Random) -> bytes:
    text = bytearray(_ordinary(rng))
    for _ in range(rng.randrange(5)):
        begin = rng.randrange(len(text) + 1)
        damage = rng.choice([b"\xc3", b"\xe2\x82", b"\x80", b"\xff", b"\xf5", b"\0", b""])
        end = begin + rng.randrange(3)
        text[begin:end] = damage
    return bytes(text)


def _surrogates(rng: random.Random) -> bytes:
    # Encoded one by one, as UTF-8 forbids it, and forms that are too long or beyond Unicode.
    codes = [
        chr(rng.randrange(0xD800, 0xE000)).encode("utf-8", "surrogatepass")
        for _ in range(rng.randrange(1, 20))
    ]
    return b" ".join([*codes, b"\xc0\x80", b"\xe0\x80\xaf", b"\xf4\x90\x80\x80"])


def _any_characters(rng: random.Random) -> bytes:
    characters = "".join(map(chr, rng.choices(range(0xE000, 0x110000), k=30)))
    return characters.encode() + _of("".join(map(chr, range(256))))(rng)


def _combining(rng: random.Random) -> bytes:
    return ("a" + rng.choice(_COMBINING) * rng.choice([1, 50, 3000])).encode()


def _special(rng: random.Random) -> bytes:
    return rng.choice(["", " "]).join(rng.choices(_SPECIAL, k=rng.randrange(1, 12))).encode()


def _of(characters: str) -> Callable[[random.Random], bytes]:
    return lambda rng: "".join(rng.choices(characters, k=rng.randrange(1, 60))).encode()


def _long(rng: random.Random) -> bytes:
    repeated = rng.choice(_REPEATED).encode()
    return repeated * (_LONG // len(repeated))


_KINDS: list[Callable[[random.Random], bytes]] = [
    _any_bytes,
    _ordinary,
    _damaged,
    _surrogates,
    _any_characters,
    _combining,
    _special,
    _of(_RIGHT_TO_LEFT),
    _of(_SPACES),
    _of(_PUNCTUATION),
    _of("".join(map(chr, range(32))) + "\x7f\x80\x9f"),
    _of("ab\0"),
]


def main() -> None:
    """Sends as many texts as the command line says, and prints the report."""
    import json

    import tensorflow_text  # noqa: F401, the tokenizer's operations

    from benchmarks.processes import versions

    servable, name, num_texts = sys.argv[1:]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        signature = tf.compat.v1.saved_model.load(session, ["serve"], servable).signature_def[name]

        def predict(name: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            fed = {signature.inputs[key].name: array for key, array in inputs.items()}
            return session.run({key: info.name for key, info in signature.outputs.items()}, fed)

        try:
            report = fuzz(predict, name, int(num_texts))
        except BrokenError as error:
            sys.exit(str(error))
    print(json.dumps({**report, "versions": versions("tensorflow", "tensorflow-text")}))


if __name__ == "__main__":
    main()
