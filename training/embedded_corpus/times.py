"""When: dates, times of the clock, weekdays, spans."""

from .determiners import THE
from .nouns import NOUNS
from .numbers import in_words, numeral
from .phrases import noun_phrase
from .text import NOTHING, words

WEEKDAYS = [
    pair.split()
    for pair in """Monday Montag, Tuesday Dienstag, Wednesday Mittwoch, Thursday Donnerstag,
    Friday Freitag, Saturday Samstag, Sunday Sonntag""".split(",")
]
MONTHS = [
    pair.split()
    for pair in """January Januar, February Februar, March März, April April, May Mai, June Juni,
    July Juli, August August, September September, October Oktober, November November,
    December Dezember""".split(",")
]
ADVERBS_OF_TIME = {
    frame: [tuple(pair.split("=")) for pair in rows.split(", ")]
    for frame, rows in {
        "past": "yesterday=gestern, last week=letzte Woche, last year=letztes Jahr, "
        "last summer=letzten Sommer, this morning=heute Morgen, yesterday evening=gestern Abend, "
        "the day before yesterday=vorgestern",
        "present": "today=heute, every day=jeden Tag, every week=jede Woche, "
        "every evening=jeden Abend, in the summer=im Sommer, in the winter=im Winter, "
        "on the weekend=am Wochenende",
        "future": "tomorrow=morgen, next week=nächste Woche, next year=nächstes Jahr, "
        "tonight=heute Abend, "
        "tomorrow morning=morgen früh, the day after tomorrow=übermorgen, soon=bald",
    }.items()
}


def date(pick):
    (english, german), day, year = pick(MONTHS), pick.number(1, 28), pick.number(1900, 2029)
    if pick.chance(0.5):
        return f"on {english} {day}", f"am {day}. {german}"
    return f"on {english} {day}, {year}", f"am {day}. {german} {year}"


def past_date(pick):
    kind, (month, monat), year = pick.number(1, 3), pick(MONTHS), pick.number(1900, 2025)
    if kind == 1:
        return f"in {year}", f"im Jahr {year}"
    return (f"in {month} {year}", f"im {monat} {year}") if kind == 2 else date(pick)


def ago(pick):
    span = span_of_time(pick, 30)
    return f"{span.en} ago", f"vor {span.de['dat']}"


def span_of_time(pick, high):
    return noun_phrase(pick(NOUNS["unit"]), numeral(pick.number(2, high)), plural=True)


def clock(pick):
    hour, minute = pick.number(1, 12), pick((5, 10, 15, 20))
    now, following = in_words(hour), in_words(hour % 12 + 1)
    kind = pick.number(1, 5)
    if kind == 1:
        german = "ein" if hour == 1 else now[1]
        return f"at {now[0]} o'clock", f"um {german} Uhr"
    if kind == 2:
        return f"at half past {now[0]}", f"um halb {following[1]}"
    if kind == 3:
        minute, half = pick.number(0, 11) * 5, pick(("a.m.", "p.m."))
        german_hour = hour % 12 + 12 * (half == "p.m.")
        return f"at {hour}:{minute:02} {half}", f"um {german_hour}:{minute:02} Uhr"
    spoken = ("a quarter", "Viertel") if minute == 15 else in_words(minute)
    if kind == 4:
        return f"at {spoken[0]} past {now[0]}", f"um {spoken[1]} nach {now[1]}"
    return f"at {spoken[0]} to {following[0]}", f"um {spoken[1]} vor {following[1]}"


def weekday(pick, frame="past", parts=True):
    english, german = pick(WEEKDAYS)
    if frame == "present":
        return f"on {english}s", f"{german.lower()}s"
    part = pick((NOTHING, (" morning", "morgen"), (" evening", "abend"))) if parts else NOTHING
    return f"on {english}{part[0]}", f"am {german}{part[1]}"


def appointment(pick, frame="past"):
    day, hour = weekday(pick, frame, parts=False), clock(pick)
    return words(day[0], hour[0]), words(day[1], hour[1])


def time_phrase(pick, frame):
    kind = pick.number(1, 10)
    if kind <= 5:
        return pick(ADVERBS_OF_TIME[frame])
    if kind <= 7:
        return weekday(pick, frame)
    if kind == 8:
        event = noun_phrase(pick(NOUNS["event"]), THE)
        return f"during {event.en}", f"während {event.de['gen']}"
    if kind == 9:
        return appointment(pick, frame)
    if frame == "past":
        return past_date(pick) if pick.chance(0.5) else ago(pick)
    if frame == "future":
        span = span_of_time(pick, 12)
        return f"in {span.en}", f"in {span.de['dat']}"
    return clock(pick)


def comma_after(time):
    """An English time in front of its clause."""
    return time + "," if " " in time else time
