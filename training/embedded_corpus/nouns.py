"""Nouns: their forms in both languages, and which of them go together.

Only forms that no rule predicts are listed.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Noun:
    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str
    genitive: str
    kind: str  # the key of the table below that lists it

    @property
    def is_human(self):
        return self.kind in ("person", "family")

    def form(self, case, plural):
        if plural:
            return self.de_plural + "n" * (case == "dat" and self.de_plural[-1] not in "ns")
        if case == "gen":
            return self.genitive
        weak = self.gender == "m" and self.genitive.endswith("n")
        return self.genitive if weak and case != "nom" else self.de


def english_s(word):
    """The plural of a noun, or the third person of a verb."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|sh|ch|[^aeiou]o)$", word) else "s")


def _genitive(de, gender):
    if gender == "f":
        return de
    one_syllable = re.fullmatch(r"[^aeiouäöü]*[aeiouäöü]+[^aeiouäöü]+", de.lower())
    return de + ("es" if one_syllable or re.search(r"(s|ß|z|sch)$", de) else "s")


# english[/plural] gender german plural [genitive]; a masculine genitive in -n is a weak noun's
_NOUNS = {
    "person": """
        man/men m Mann Männer; woman/women f Frau Frauen; boy m Junge Jungen Jungen;
        teacher m Lehrer Lehrer; student m Student Studenten Studenten; doctor m Arzt Ärzte;
        neighbor m Nachbar Nachbarn Nachbarn; friend m Freund Freunde; baker m Bäcker Bäcker;
        colleague m Kollege Kollegen Kollegen; customer m Kunde Kunden Kunden; guest m Gast Gäste;
        farmer m Bauer Bauern Bauern; engineer m Ingenieur Ingenieure; lawyer m Anwalt Anwälte;
        judge m Richter Richter; tourist m Tourist Touristen Touristen; king m König Könige;
        mayor m Bürgermeister Bürgermeister; policeman/policemen m Polizist Polizisten Polizisten;
        photographer m Fotograf Fotografen Fotografen; actress f Schauspielerin Schauspielerinnen;
        waitress f Kellnerin Kellnerinnen; queen f Königin Königinnen;
        princess f Prinzessin Prinzessinnen; saleswoman/saleswomen f Verkäuferin Verkäuferinnen""",
    "family": """
        mother f Mutter Mütter; father m Vater Väter; sister f Schwester Schwestern;
        brother m Bruder Brüder; daughter f Tochter Töchter; son m Sohn Söhne; aunt f Tante Tanten;
        uncle m Onkel Onkel; grandmother f Großmutter Großmütter; niece f Nichte Nichten;
        grandfather m Großvater Großväter; nephew m Neffe Neffen Neffen""",
    "child": "child/children n Kind Kinder",
    "animal": """
        dog m Hund Hunde; cat f Katze Katzen; horse n Pferd Pferde; cow f Kuh Kühe;
        bird m Vogel Vögel; mouse/mice f Maus Mäuse; pig n Schwein Schweine; duck f Ente Enten;
        rabbit n Kaninchen Kaninchen; goat f Ziege Ziegen; bear m Bär Bären Bären""",
    "thing": """
        table m Tisch Tische; chair m Stuhl Stühle; lamp f Lampe Lampen; clock f Uhr Uhren;
        knife/knives n Messer Messer; spoon m Löffel Löffel; plate m Teller Teller;
        cup f Tasse Tassen; glass n Glas Gläser; bottle f Flasche Flaschen; bag f Tasche Taschen;
        umbrella m Regenschirm Regenschirme; key m Schlüssel Schlüssel; mirror m Spiegel Spiegel;
        carpet m Teppich Teppiche; sofa n Sofa Sofas; bed n Bett Betten;
        cupboard m Schrank Schränke; picture n Bild Bilder; camera f Kamera Kameras;
        computer m Computer Computer;
        radio n Radio Radios; guitar f Gitarre Gitarren; piano/pianos n Klavier Klaviere;
        basket m Korb Körbe; box f Kiste Kisten; suitcase m Koffer Koffer; ball m Ball Bälle;
        backpack m Rucksack Rucksäcke; doll f Puppe Puppen; candle f Kerze Kerzen;
        flower f Blume Blumen; gift n Geschenk Geschenke; vase f Vase Vasen; ring m Ring Ringe;
        pencil m Bleistift Bleistifte""",
    "clothes": """
        shirt n Hemd Hemden; dress n Kleid Kleider; coat m Mantel Mäntel; skirt m Rock Röcke;
        hat m Hut Hüte; jacket f Jacke Jacken; sweater m Pullover Pullover;
        scarf/scarves m Schal Schals Schals; blouse f Bluse Blusen""",
    "text": """
        book n Buch Bücher; letter m Brief Briefe; story f Geschichte Geschichten;
        poem n Gedicht Gedichte; novel m Roman Romane; report m Bericht Berichte;
        postcard f Postkarte Postkarten; contract m Vertrag Verträge; article m Artikel Artikel;
        newspaper f Zeitung Zeitungen; recipe n Rezept Rezepte""",
    "vehicle": """
        car n Auto Autos; bicycle n Fahrrad Fahrräder; train m Zug Züge; bus m Bus Busse Busses;
        ship n Schiff Schiffe; truck m Lastwagen Lastwagen; boat n Boot Boote;
        tram f Straßenbahn Straßenbahnen""",
    "food": """
        apple m Apfel Äpfel; egg n Ei Eier; potato f Kartoffel Kartoffeln; cake m Kuchen Kuchen;
        pear f Birne Birnen; orange f Orange Orangen; tomato f Tomate Tomaten; soup f Suppe Suppen;
        carrot f Karotte Karotten; roll n Brötchen Brötchen; sausage f Wurst Würste;
        salad m Salat Salate; onion f Zwiebel Zwiebeln; pizza f Pizza Pizzas""",
    "mass": """
        water n Wasser -; milk f Milch -; coffee m Kaffee -; tea m Tee -; wine m Wein -;
        beer n Bier -; juice m Saft -; bread n Brot -; cheese m Käse -; butter f Butter -;
        honey m Honig -; rice m Reis -; meat n Fleisch -""",
    "building": """
        house n Haus Häuser; church f Kirche Kirchen; museum n Museum Museen;
        castle n Schloss Schlösser; bridge f Brücke Brücken; school f Schule Schulen;
        hotel n Hotel Hotels; theater n Theater Theater; library f Bibliothek Bibliotheken;
        hospital n Krankenhaus Krankenhäuser; tower m Turm Türme; factory f Fabrik Fabriken;
        bakery f Bäckerei Bäckereien; restaurant n Restaurant Restaurants""",
    "area": """
        station m Bahnhof Bahnhöfe; airport m Flughafen Flughäfen; garden m Garten Gärten;
        park m Park Parks Parks; kitchen f Küche Küchen; office n Büro Büros; room n Zimmer Zimmer;
        cellar m Keller Keller; market m Markt Märkte; village n Dorf Dörfer; forest m Wald Wälder;
        lake m See Seen""",
    "opening": "window n Fenster Fenster; door f Tür Türen",
    "event": """
        concert n Konzert Konzerte; lecture m Vortrag Vorträge; meeting f Besprechung Besprechungen;
        exam f Prüfung Prüfungen; film m Film Filme Films; course m Kurs Kurse""",
    "unit": """
        day m Tag Tage; week f Woche Wochen; month m Monat Monate; year n Jahr Jahre;
        hour f Stunde Stunden; minute f Minute Minuten""",
    "counted": "inhabitant m Einwohner Einwohner; page f Seite Seiten",
}


def _read_noun(row, kind):
    english, gender, de, de_plural, *genitive = row.split()
    en, _, en_plural = english.partition("/")
    genitive = genitive[0] if genitive else _genitive(de, gender)
    return Noun(en, en_plural or english_s(en), gender, de, de_plural, genitive, kind)


NOUNS = {
    kind: [_read_noun(row, kind) for row in rows.split(";")] for kind, rows in _NOUNS.items()
}
NOUN = {noun.en: noun for nouns in NOUNS.values() for noun in nouns}
NOUNS.update(
    (kind, [NOUN[name] for name in names.split()])
    for kind, names in {
        "device": "lamp computer radio camera",
        "closable": "window door suitcase box bottle umbrella",
        "lockable": "door house suitcase cupboard car",
        "breakable": "glass vase plate cup mirror bottle",
        "signable": "contract letter report postcard",
        "written": "book letter story poem novel report postcard article recipe",
        "drink": "water milk coffee tea wine beer juice",
        "meal": "bread cheese butter honey rice meat",
        "baked": "cake roll pizza",
        "cooked": "potato egg soup sausage",
        "repairable": "clock camera computer radio guitar piano car bicycle truck boat",
        "tidy": "kitchen office room cellar garden",
        "flat": "book letter newspaper key knife spoon pencil ring camera",
        "upright": "lamp vase bottle cup plate basket suitcase glass candle",
        "hanging": "picture mirror clock coat",
        "surface": "table bed sofa chair cupboard",
        "profession": "teacher doctor baker engineer lawyer judge photographer actress waitress",
        "portable": "book umbrella camera bag guitar suitcase backpack cake gift bottle",
        "awaited": "bus train doctor letter guest gift",
    }.items()
)
