"""Numbers in words and digits, and prices."""

from .determiners import NO_ENDINGS, STRONG, Determiner

_ONES_EN = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen""".split()
_ONES_DE = """null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn
    fünfzehn sechzehn siebzehn achtzehn neunzehn""".split()
_TENS_EN = "- ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_TENS_DE = "- zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def english_number(n):
    """Words for 0 <= n < 10,000: two thousand one hundred and forty-five."""
    thousands, hundreds, rest = n // 1000, n // 100 % 10, n % 100
    words = []
    if thousands:
        words.append(f"{_ONES_EN[thousands]} thousand")
    if hundreds:
        words.append(f"{_ONES_EN[hundreds]} hundred")
    if rest or not words:
        ones = f"-{_ONES_EN[rest % 10]}" if rest % 10 else ""
        small = _ONES_EN[rest] if rest < 20 else _TENS_EN[rest // 10] + ones
        words.append(f"and {small}" if words else small)
    return " ".join(words)


def german_number(n):
    """The word for 0 <= n < 10,000, as it is counted: zweitausendeinhundertfünfundvierzig."""
    thousands, hundreds, ones, tens = n // 1000, n // 100 % 10, n % 10, n // 10 % 10
    word = f"{_ONES_DE[thousands]}tausend" * (thousands > 0)
    word += f"{_ONES_DE[hundreds]}hundert" * (hundreds > 0)
    if n % 100 < 20:
        small = "eins" if n % 100 == 1 else _ONES_DE[n % 100]
        return word + small if n % 100 or not word else word
    return word + f"{_ONES_DE[ones]}und" * (ones > 0) + _TENS_DE[tens]


def in_words(n):
    return english_number(n), german_number(n)


def in_digits(n, cents=None):
    english = f"{n:,}" + (f".{cents:02}" if cents is not None else "")
    return english, english.translate(str.maketrans(",.", ".,"))


def numeral(n, digits=False):
    english, german = in_digits(n) if digits else in_words(n)
    return Determiner("", german, NO_ENDINGS, STRONG, "indefinite", english)


def amount(pick):
    whole = pick.number(*pick(((2, 99), (100, 999), (1_000, 9_999))))
    kind = pick.number(1, 5)
    unit = pick((("euros", "Euro"), ("dollars", "Dollar")))
    if kind == 1 and whole % 100 != 1:
        return price(whole, None, unit, spelled=True)
    cents = pick((None, None, 50, 95, 99, 25, 75, 80, 5))
    return price(whole, cents, pick((unit, ("€", "€"), ("$", "$"))))


def price(whole, cents, unit, spelled=False):
    english, german = in_words(whole) if spelled else in_digits(whole, cents)
    if unit[0] in "€$":
        return unit[0] + english, f"{german} {unit[1]}"
    return f"{english} {unit[0]}", f"{german} {unit[1]}"
