"""Adjectives, and the kinds of noun that they suit."""

from dataclasses import dataclass

# english german[/stem before an ending] [english comparative, german comparative]
_ADJECTIVES = """
    old alt older älter; young jung younger jünger; new neu newer neuer; friendly freundlich;
    famous berühmt; tired müde; clever klug; happy glücklich; sad traurig;
    rich reich richer reicher; poor arm poorer ärmer; hungry hungrig; sick krank; polite höflich;
    hard-working fleißig; lazy faul;
    tall groß taller größer; strong stark stronger stärker; curious neugierig; nervous nervös;
    patient geduldig; honest ehrlich; expensive teuer/teur more_expensive teurer;
    cheap billig cheaper billiger; beautiful schön more_beautiful schöner; big groß bigger größer;
    small klein smaller kleiner; heavy schwer heavier schwerer; broken kaputt; dirty schmutzig;
    clean sauber; modern modern more_modern moderner; strange seltsam; valuable wertvoll;
    useful nützlich more_useful nützlicher; practical praktisch; long lang longer länger;
    short kurz shorter kürzer; interesting interessant more_interesting interessanter;
    boring langweilig; funny lustig funnier lustiger; important wichtig more_important wichtiger;
    difficult schwierig more_difficult schwieriger; fresh frisch; sweet süß; delicious lecker;
    cold kalt; hot heiß; warm warm; fast schnell faster schneller; loud laut; quiet ruhig;
    dangerous gefährlich; wild wild; dark dunkel/dunkl; high hoch/hoh higher höher;
    red rot; blue blau; green grün; yellow gelb; white weiß; black schwarz; brown braun;
    gray grau"""


@dataclass(frozen=True, eq=False)
class Adjective:
    en: str
    de: str
    stem: str
    en_comparative: str = ""
    de_comparative: str = ""


def _read_adjective(row):
    en, german, *comparative = row.split()
    de, _, stem = german.partition("/")
    comparative = (word.replace("_", " ") for word in comparative)
    return Adjective(en, de, stem or de.removesuffix("e"), *comparative)


ADJECTIVE = {row.split()[0]: _read_adjective(row) for row in _ADJECTIVES.split(";")}
ADJECTIVES = {
    kind: [ADJECTIVE[name] for name in names.split()]
    for kind, names in {
        "person": """old young friendly famous tired clever happy sad rich poor hungry sick polite
            hard-working lazy tall strong curious nervous patient honest""",
        "family": "old young friendly famous clever polite curious patient",
        "mood": "tired happy sad hungry sick nervous",
        "child": "small friendly tired clever happy sad hungry sick polite curious",
        "animal": "old young big small wild hungry fast loud dangerous beautiful",
        "thing": """old new expensive cheap beautiful big small heavy broken dirty clean modern
            strange valuable useful practical""",
        "clothes": "old new expensive cheap beautiful dirty clean warm long short",
        "text": "old new long short interesting boring funny important difficult strange",
        "vehicle": "old new expensive cheap fast loud big small broken modern",
        "food": "fresh cheap big small delicious",
        "mass": "fresh cheap",
        "building": "old new modern beautiful big small famous quiet dark",
        "area": "old new beautiful big small quiet",
        "opening": "big small old new high",
        "event": "long short interesting boring important difficult",
        "color": "red blue green yellow white black brown gray",
        "fur": "white black brown gray",
    }.items()
}
