"""Where somebody is, where somebody goes, and who is with them."""

from .determiners import POSSESSIVES, THE
from .nouns import NOUN, NOUNS
from .phrases import (
    PERSONAL,
    described,
    noun_phrase,
    relative_of,
    some_adjectives,
    with_preposition,
)

CITIES = [
    pair.split()
    for pair in """Berlin Berlin, Munich München, Cologne Köln, Vienna Wien, Zurich Zürich,
    Nuremberg Nürnberg, Hanover Hannover, Hamburg Hamburg, Leipzig Leipzig, Prague Prag, Rome Rom,
    Geneva Genf, Brussels Brüssel, Venice Venedig, Lisbon Lissabon""".split(",")
]
COUNTRIES = [
    pair.split()
    for pair in """Germany Deutschland, Austria Österreich, Italy Italien, France Frankreich,
    Spain Spanien, Poland Polen""".split(",")
]

# noun; where: english "in" or "at", german preposition with the dative; where to: german
# preposition and its case
PLACES = [
    (NOUN[noun], *prepositions)
    for noun, *prepositions in (
        row.split()
        for row in """kitchen in in in acc; garden in in in acc; park in in in acc;
        office in in in acc; forest in in in acc; cellar in in in acc; village in in in acc;
        museum in in in acc; hotel in in in acc; theater in in in acc; library in in in acc;
        hospital in in in acc; restaurant in in in acc; castle in in zu dat; church in in zu dat;
        bakery in in zu dat; factory in in zu dat; station at an zu dat; airport at an zu dat;
        market at auf zu dat; lake at an zu dat""".split(";")
    )
]
SIDES = (("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"))


def to_town(pick):
    english, german = pick(CITIES + COUNTRIES)
    return f"to {english}", f"nach {german}"


def direction(pick):
    noun, _, _, preposition, case = pick(PLACES)
    target = described(pick, noun, THE, 0.2)
    return f"to {target.en}", with_preposition(preposition, target.de[case])


def town(pick, towns=CITIES):
    english, german = pick(towns)
    return f"in {english}", f"in {german}"


def location(pick):
    if pick.chance(0.35):
        return town(pick)
    noun, english, german, _, _ = pick(PLACES)
    target = described(pick, noun, THE, 0.2)
    return f"{english} {target.en}", with_preposition(german, target.de["dat"])


def surroundings(pick, who):
    return company(pick, who) if pick.chance(0.3) else location(pick)


def company(pick, who):
    partner = relative_of(pick, who.pronoun)
    return f"with {partner.en}", f"mit {partner.de['dat']}"


def spot(pick, case):
    """On, under or beside a piece of furniture: dative for where, accusative for where to."""
    english, german = pick(SIDES)
    noun = pick(NOUNS["surface"])
    adjectives = some_adjectives(pick, noun, 0.25)
    target = noun_phrase(noun, pick((THE, THE, POSSESSIVES[pick(PERSONAL).pronoun])), adjectives)
    return f"{english} {target.en}", with_preposition(german, target.de[case])
