"""The words of the embedded English-German corpus and their forms.

Only forms that no rule predicts are listed; `Noun`, `Verb` and the endings supply the rest.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

CASES = ("nom", "acc", "dat", "gen")


def _paradigm(rows):
    """Endings by (case, gender); the genders are m, f, n and p for every plural."""
    return {
        (case, gender): ending.strip("-")
        for case, row in zip(CASES, rows.split("|"))
        for gender, ending in zip("mfnp", row.split())
    }


DEFINITE = _paradigm("der die das die|den die das die|dem der dem den|des der des der")
DER_ENDINGS = _paradigm("er e es e|en e es e|em er em en|es er es er")
EIN_ENDINGS = _paradigm("- e - e|en e - e|em er em en|es er es er")
NO_ENDINGS = _paradigm("- - - -|- - - -|- - - -|- - - -")
WEAK = _paradigm("e e e en|en e e en|en en en en|en en en en")
MIXED = _paradigm("er e es en|en e es en|en en en en|en en en en")
STRONG = _paradigm("er e es e|en e es e|em er em en|en er en er")
RELATIVE = _paradigm("der die das die|den die das die|dem der dem denen|dessen deren dessen deren")


@dataclass(frozen=True, eq=False)
class Determiner:
    en: str
    de: str
    endings: dict
    adjective_endings: dict
    status: str  # definite, indefinite or negative: decides where German puts the noun phrase
    en_plural: str = ""


THE = Determiner("the", "", DEFINITE, WEAK, "definite", "the")
THIS = Determiner("this", "dies", DER_ENDINGS, WEAK, "definite", "these")
EVERY = Determiner("every", "jed", DER_ENDINGS, WEAK, "definite")
WHICH = Determiner("which", "welch", DER_ENDINGS, WEAK, "definite", "which")
A = Determiner("a", "ein", EIN_ENDINGS, MIXED, "indefinite")
NOT_A = Determiner("a", "kein", EIN_ENDINGS, MIXED, "negative")
NO = Determiner("no", "kein", EIN_ENDINGS, MIXED, "negative", "no")
BARE = Determiner("", "", NO_ENDINGS, STRONG, "indefinite")
QUANTIFIERS = (
    Determiner("", "viel", DER_ENDINGS, STRONG, "indefinite", "many"),
    Determiner("", "einig", DER_ENDINGS, STRONG, "indefinite", "some"),
    Determiner("", "mehrer", DER_ENDINGS, STRONG, "indefinite", "several"),
)


@dataclass(frozen=True, eq=False)
class Noun:
    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str
    genitive: str

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
    "wall": "wall f Wand Wände",
    "event": """
        concert n Konzert Konzerte; lecture m Vortrag Vorträge; meeting f Besprechung Besprechungen;
        exam f Prüfung Prüfungen; film m Film Filme Films; course m Kurs Kurse""",
    "unit": """
        day m Tag Tage; week f Woche Wochen; month m Monat Monate; year n Jahr Jahre;
        hour f Stunde Stunden; minute f Minute Minuten""",
    "counted": "inhabitant m Einwohner Einwohner; page f Seite Seiten",
}


def _read_noun(row):
    english, gender, de, de_plural, *genitive = row.split()
    en, _, en_plural = english.partition("/")
    genitive = genitive[0] if genitive else _genitive(de, gender)
    return Noun(en, en_plural or english_s(en), gender, de, de_plural, genitive)


NOUNS = {kind: [_read_noun(row) for row in rows.split(";")] for kind, rows in _NOUNS.items()}
NOUN = {noun.en: noun for nouns in NOUNS.values() for noun in nouns}
KIND = {noun.en: kind for kind, nouns in NOUNS.items() for noun in nouns}
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
        "instrument": "guitar piano",
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
_PERSONAL = """old young friendly famous tired clever happy sad rich poor hungry sick polite
    hard-working lazy tall strong curious nervous patient honest"""
ADJECTIVES = {
    kind: [ADJECTIVE[name] for name in names.split()]
    for kind, names in {
        "person": _PERSONAL,
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

# english: base[/past/participle][+particle] [preposition];
# german: [sich] [prefix+]infinitive [third person, past, participle] [dat | preposition:case],
# with a * on the participle for a perfect with sein;
# then the kinds of noun that make sense as the object
_TRANSITIVE = """
    buy/bought/bought | kaufen | thing clothes vehicle food text
    sell/sold/sold | verkaufen | thing clothes vehicle food
    find/found/found | finden findet fand gefunden | thing clothes text animal
    lose/lost/lost | verlieren verliert verlor verloren | thing clothes text
    see/saw/seen | sehen sieht sah gesehen | person child animal vehicle building
    look for | suchen | thing clothes text animal child
    need | brauchen | thing clothes vehicle
    repair | reparieren | repairable
    draw/drew/drawn | zeichnen | animal building flower
    photograph | fotografieren | person child animal building
    read/read/read | lesen liest las gelesen | text
    write/wrote/written | schreiben schreibt schrieb geschrieben | written
    translate | übersetzen übersetzt übersetzte übersetzt | written
    describe | beschreiben beschreibt beschrieb beschrieben | person animal building thing
    eat/ate/eaten | essen isst aß gegessen | food meal
    drink/drank/drunk | trinken trinkt trank getrunken | drink
    bake | backen backt backte gebacken | baked
    cook | kochen | cooked
    wash | waschen wäscht wusch gewaschen | clothes vehicle
    wear/wore/worn | tragen trägt trug getragen | clothes
    forget/forgot/forgotten | vergessen vergisst vergaß vergessen | thing clothes text
    visit | besuchen | person family child building
    invite | ein+laden lädt lud geladen | person family child
    meet/met/met | treffen trifft traf getroffen | person family
    call | an+rufen ruft rief gerufen | person family
    pick+up | ab+holen | person family child
    understand/understood/understood | verstehen versteht verstand verstanden | person text
    greet | grüßen | person family child
    turn+on | ein+schalten | device
    turn+off | aus+schalten | device
    put/put/put+on | an+ziehen zieht zog gezogen | clothes
    take/took/taken+off | aus+ziehen zieht zog gezogen | clothes
    open | öffnen | closable
    close | schließen schließt schloss geschlossen | closable
    lock | ab+schließen schließt schloss geschlossen | lockable
    throw/threw/thrown+away | weg+werfen wirft warf geworfen | thing clothes text
    bring/brought/brought+along | mit+bringen bringt brachte gebracht | portable
    take/took/taken+along | mit+nehmen nimmt nahm genommen | portable
    return | zurück+geben gibt gab gegeben | thing text
    sign | unterschreiben unterschreibt unterschrieb unterschrieben | signable
    steal/stole/stolen | stehlen stiehlt stahl gestohlen | thing vehicle
    break/broke/broken | zerbrechen zerbricht zerbrach zerbrochen | breakable
    hide/hid/hidden | verstecken | thing text
    rent | mieten | vehicle
    order | bestellen | food thing
    feed/fed/fed | füttern | animal
    catch/caught/caught | fangen fängt fing gefangen | animal
    tidy/tidied/tidied+up | auf+räumen | tidy
    check | prüfen | text vehicle
    admire | bewundern | building person text
    help | helfen hilft half geholfen dat | person family child
    thank | danken dat | person family
    follow | folgen folgt folgte *gefolgt dat | person animal
    answer | antworten dat | person family
    listen to | zu+hören dat | person family child
    congratulate | gratulieren dat | person family
    wait for | warten auf:acc | awaited family
    talk about | sprechen spricht sprach gesprochen über:acc | person family text building
    think/thought/thought of | denken denkt dachte gedacht an:acc | person family child
    laugh about | lachen über:acc | text
    dream of | träumen von:dat | animal building vehicle
    ask for | bitten bittet bat gebeten um:acc | thing text
    remember | sich erinnern an:acc | person building text
    look forward to | sich freuen auf:acc | event gift
    complain about | sich beschweren über:acc | food event vehicle
    take/took/taken care of | sich kümmern um:acc | child animal family
"""
_GIVING = """
    give/gave/given | geben gibt gab gegeben | thing text clothes
    show/showed/shown | zeigen | thing text animal
    send/sent/sent | schicken | text gift
    lend/lent/lent | leihen leiht lieh geliehen | thing clothes vehicle
    explain | erklären | contract report story recipe
    recommend | empfehlen empfiehlt empfahl empfohlen | written restaurant hotel
    bring/brought/brought | bringen bringt brachte gebracht | thing food clothes
"""
_INTRANSITIVE = """
    sleep/slept/slept | schlafen schläft schlief geschlafen
    work | arbeiten
    sing/sang/sung | singen singt sang gesungen
    dance | tanzen
    play | spielen
    cry | weinen
    swim/swam/swum | schwimmen schwimmt schwamm *geschwommen
    get/got/gotten+up | auf+stehen steht stand *gestanden
    fall/fell/fallen asleep | ein+schlafen schläft schlief *geschlafen
    wake/woke/woken+up | auf+wachen wacht wachte *gewacht
    come/came/come+back | zurück+kommen kommt kam *gekommen
"""
_MOTION = """
    go/went/gone | gehen geht ging *gegangen
    drive/drove/driven | fahren fährt fuhr *gefahren
    run/ran/run | laufen läuft lief *gelaufen
    travel/traveled/traveled | reisen reist reiste *gereist
    fly/flew/flown | fliegen fliegt flog *geflogen
"""
_OTHER = """
    be/was/been | sein ist war *gewesen
    have/had/had | haben hat hatte gehabt
    cost/cost/cost | kosten
    pay/paid/paid | bezahlen
    own | besitzen besitzt besaß besessen
    live | wohnen
    begin/began/begun | beginnen beginnt begann begonnen
    end | enden
    depart | ab+fahren fährt fuhr *gefahren
    arrive | an+kommen kommt kam *gekommen
    lie/lay/lain | liegen liegt lag gelegen
    stand/stood/stood | stehen steht stand gestanden
    hang/hung/hung | hängen hängt hing gehangen
    put/put/put | legen
    place | stellen
    become/became/become | werden wird wurde *geworden
    say/said/said | sagen
    know/knew/known | wissen weiß wusste gewusst
    hope | hoffen
    believe | glauben
    ask | fragen
    wonder | sich fragen
    build/built/built | bauen
    try | versuchen
    decide | beschließen beschließt beschloss beschlossen
    promise | versprechen verspricht versprach versprochen
"""
_IRREGULAR_PRESENT = {  # (first person, plural), where the infinitive does not give them
    "be": ("am", "are"), "sein": ("bin", "sind"), "wissen": ("weiß", "wissen"),
}


@dataclass(frozen=True, eq=False)
class Verb:
    en: str
    en_past: str
    en_participle: str
    en_particle: str  # follows a pronoun object: picks up the child, picks it up
    en_preposition: str
    prefix: str  # separable
    infinitive: str  # without the prefix, as the next three
    third: str
    past: str
    participle: str
    auxiliary: str
    reflexive: bool
    governs: str  # the case of the object
    preposition: str
    objects: tuple

    @property
    def tense_is_audible(self):
        """Whether English tells present from past in every person (I read; they put)."""
        return self.en != self.en_past

    def english(self, agreement, past=False):
        if past:
            return "were" if (self.en, agreement) == ("be", "p") else self.en_past
        if agreement == "3":
            return {"be": "is", "have": "has"}.get(self.en) or english_s(self.en)
        return dict(zip("1p", _IRREGULAR_PRESENT.get(self.en, (self.en, self.en))))[agreement]

    def german(self, agreement, past=False):
        if past:
            plural = "n" if self.past.endswith("e") else "en"
            return self.past + plural * (agreement == "p")
        if agreement == "3":
            return self.third
        first = _stem(self.infinitive) + "e"
        regular = (first, self.infinitive)
        return dict(zip("1p", _IRREGULAR_PRESENT.get(self.infinitive, regular)))[agreement]

    @property
    def zu_infinitive(self):
        return f"{self.prefix}zu{self.infinitive}" if self.prefix else f"zu {self.infinitive}"


def _stem(infinitive):
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _regular_german(infinitive):
    stem = _stem(infinitive)
    t = "et" if re.search(r"([td]|(ch|f)n)$", stem) else "t"
    ge = "" if re.match("be|er|ver|emp|zer", stem) or infinitive.endswith("ieren") else "ge"
    return [stem + t, stem + t + "e", ge + stem + t]


def _regular_english(base):
    if re.search(r"[^aeiou]y$", base):
        return [base[:-1] + "ied"] * 2
    return [base + ("d" if base.endswith("e") else "ed")] * 2


def _read_verb(row):
    english, german, objects = (row + " | ").split("|")[:3]
    head, *en_preposition = english.split()
    forms, _, particle = head.partition("+")
    en, *en_forms = forms.split("/")
    words = german.split()
    reflexive = words[0] == "sich"
    governs, preposition = "acc", ""
    if words[-1] == "dat":
        governs = words.pop()
    elif ":" in words[-1]:
        preposition, governs = words.pop().split(":")
    infinitive, *de_forms = words[reflexive:]
    prefix, _, rest = infinitive.rpartition("+")
    third, past, participle = de_forms or _regular_german(rest)
    return Verb(
        en, *(en_forms or _regular_english(en)), particle, " ".join(en_preposition),
        prefix, rest, third, past, prefix + participle.strip("*"),
        "sein" if participle.startswith("*") else "haben",
        reflexive, governs, preposition, tuple(objects.split()),
    )


def _read_verbs(rows):
    return [_read_verb(row) for row in rows.strip().splitlines()]


TRANSITIVE, GIVING, INTRANSITIVE, MOTION, OTHER = map(
    _read_verbs, (_TRANSITIVE, _GIVING, _INTRANSITIVE, _MOTION, _OTHER)
)
VERB = {
    " ".join(filter(None, (verb.en, verb.en_particle, verb.en_preposition))): verb
    for verb in TRANSITIVE + GIVING + INTRANSITIVE + MOTION + OTHER
}

# subject object | nominative accusative dative | possessives | agreement
_PRONOUNS = """
    I: I me | ich mich mir | my mein | 1
    we: we us | wir uns uns | our unser | p
    you: you you | Sie Sie Ihnen | your Ihr | p
    he: he him | er ihn ihm | his sein | 3
    she: she her | sie sie ihr | her ihr | 3
    they: they them | sie sie ihnen | their ihr | p
    it.m: it it | er ihn ihm | its sein | 3
    it.f: it it | sie sie ihr | its ihr | 3
    it.n: it it | es es ihm | its sein | 3
"""
PRONOUNS = {
    key.strip(): tuple(column.split() for column in columns.split("|"))
    for key, columns in (row.split(":") for row in _PRONOUNS.strip().splitlines())
}
POSSESSIVES = {
    key: Determiner(*words, EIN_ENDINGS, MIXED, "definite", words[0])
    for key, (_, _, words, _) in PRONOUNS.items()
}

# german singular and plural; english finite, third person and others; english auxiliary of negation
# and questions, third person and others; what follows that auxiliary
MODALS = {
    "can": ("kann", "können", "can", "can", "can", "can", ""),
    "could": ("konnte", "konnten", "could", "could", "could", "could", ""),
    "may": ("darf", "dürfen", "may", "may", "may", "may", ""),
    "should": ("sollte", "sollten", "should", "should", "should", "should", ""),
    "has to": ("muss", "müssen", "has to", "have to", "does", "do", "have to"),
    "had to": ("musste", "mussten", "had to", "had to", "did", "did", "have to"),
    "wants to": ("will", "wollen", "wants to", "want to", "does", "do", "want to"),
    "wanted to": ("wollte", "wollten", "wanted to", "wanted to", "did", "did", "want to"),
    "would like to": ("möchte", "möchten", "would", "would", "would", "would", "like to"),
}

WOMEN = "Anna Maria Clara Emma Sophie Julia Laura Lena".split()
MEN = "Peter Paul Martin Daniel Stefan David Simon Oliver".split()
SURNAMES = "Schmidt Weber Fischer Wagner Becker Hoffmann Krüger Köhler".split()
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

# noun: english "in" or "at", german "in", "an" or "auf" (dative), german "to"
PLACES = {
    row.split()[0]: row.split()[1:]
    for row in """kitchen in in in:acc; garden in in in:acc; park in in in:acc; office in in in:acc;
    forest in in in:acc; cellar in in in:acc; village in in in:acc; museum in in in:acc;
    hotel in in in:acc; theater in in in:acc; library in in in:acc; hospital in in in:acc;
    restaurant in in in:acc; castle in in zu:dat; church in in zu:dat; bakery in in zu:dat;
    factory in in zu:dat; station at an zu:dat; airport at an zu:dat; market at auf zu:dat;
    lake at an zu:dat""".split(";")
}
TWO_WAY = (("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"))

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
ADVERBS = [  # english, german, the tenses they go with
    ("already", "schon", "perfect pluperfect"),
    ("just", "gerade", "perfect pluperfect"),
    ("never", "nie", "present past perfect"),
    ("often", "oft", "present past perfect"),
    ("always", "immer", "present past"),
    ("rarely", "selten", "present past"),
    ("finally", "endlich", "past perfect"),
    ("probably", "wahrscheinlich", "future"),
]

_ONES_EN = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen""".split()
_ONES_DE = """null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn
    fünfzehn sechzehn siebzehn achtzehn neunzehn""".split()
_TENS_EN = "- ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_TENS_DE = "- zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


@lru_cache(maxsize=None)
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


@lru_cache(maxsize=None)
def german_number(n):
    """The word for 0 <= n < 10,000, as it is counted: zweitausendeinhundertfünfundvierzig."""
    thousands, hundreds, ones, tens = n // 1000, n // 100 % 10, n % 10, n // 10 % 10
    word = f"{_ONES_DE[thousands]}tausend" * (thousands > 0)
    word += f"{_ONES_DE[hundreds]}hundert" * (hundreds > 0)
    if n % 100 < 20:
        small = "eins" if n % 100 == 1 else _ONES_DE[n % 100]
        return word + small if n % 100 or not word else word
    return word + f"{_ONES_DE[ones]}und" * (ones > 0) + _TENS_DE[tens]
