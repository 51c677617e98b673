"""Texts that nobody means well with, drawn at random, for servers of strangers: the same for the same seed."""

import random
from collections.abc import Callable

_SENTENCES = ["A man is standing on a ladder.", "Zwei Hunde laufen im Schnee!", "她买了两个苹果。", "Où est-il?"]
_SPECIAL = [
    *("<pad>", "<unk>", "<s>", "</s>", "<0x00>", "<0x0A>", "<0xFF>", ">>de<<", "[MASK]", "##ing"),
    # What tokenizers and the division into sentences write for themselves; byte order marks; of private use.
    *("\u2581", "\u241b", "\u241b_", "\u241b.", "\ufdd0", "\ufdd0d", "\ufdd0n", "\ufeff", "\ufffd", "\ufffe", "\ue000"),
]
_RIGHT_TO_LEFT = "אבגשלום مرحبا٣٤؟،؛\u200f\u202e\u2067\u2069\u061c\u200b\u200d"
_COMBINING = "\u0301\u0323\u0337\u20dd\u0e34\u3099\ufe0f"
_SPACES = " \t\n\r\v\f\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000"
_PUNCTUATION = ".,;:!?…。！？、؟।\"'“”„«»()[]–—-%&/\\$^*+|{}"
# Of which lines are made that are a megabyte long.
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


def hostile_texts(number: int, seed: int, long_share: float = 0.001) -> list[bytes]:
    """Draws texts, most of which are not UTF-8, not of any language, or very long.

    Args:
        number: int. How many.
        seed: int. The only source of randomness.
        long_share: float. The share of texts of a megabyte. Defaults to 0.001.
    """
    rng = random.Random(seed)
    return [
        _long(rng) if rng.random() < long_share else b"".join(rng.choice(_KINDS)(rng) for _ in range(rng.randint(1, 3)))
        for _ in range(number)
    ]


def _any_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(100))


def _ordinary(rng: random.Random) -> bytes:
    return rng.choice(_SENTENCES).encode() * rng.randrange(4)


def _damaged(rng: random.Random) -> bytes:
    text = bytearray(_ordinary(rng))
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(text) + 1)
        text[at : at + rng.randrange(3)] = rng.choice([b"\xc3", b"\xe2\x82", b"\x80", b"\xff", b"\xf5", b"\0", b""])
    return bytes(text)


def _surrogates(rng: random.Random) -> bytes:
    # Encoded one by one, as UTF-8 forbids it, and forms that are too long or beyond Unicode.
    codes = [chr(rng.randrange(0xD800, 0xE000)).encode("utf-8", "surrogatepass") for _ in range(rng.randrange(1, 20))]
    return b" ".join([*codes, b"\xc0\x80", b"\xe0\x80\xaf", b"\xf4\x90\x80\x80"])


def _any_characters(rng: random.Random) -> bytes:
    return "".join(map(chr, rng.choices(range(0xE000, 0x110000), k=30))).encode() + _of("".join(map(chr, range(256))))(
        rng
    )


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
    *(_any_bytes, _ordinary, _damaged, _surrogates, _any_characters, _combining, _special),
    *map(_of, (_RIGHT_TO_LEFT, _SPACES, _PUNCTUATION, "".join(map(chr, range(32))) + "\x7f\x80\x9f", "ab\0")),
]
