"""Verbs: their forms in both languages, what they govern, and the objects that make sense.

Only forms that no rule predicts are listed.
"""

import re
from dataclasses import dataclass

from .nouns import NOUN, NOUNS, Noun, english_s

# english: base[/past/participle][+particle] [preposition];
# german: [sich] [prefix+]infinitive [third person, past, participle] [dat | preposition:case],
# with a * on the participle for a perfect with sein;
# then the kinds of noun, or single nouns, that make sense as the object
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
    objects: tuple[Noun, ...]  # that make sense

    @property
    def tense_is_audible(self):
        """Whether English tells present from past in every person (I read; they put)."""
        return self.en != self.en_past

    def english(self, agreement, past=False):
        if self.en == "be":
            present = {"1": "am", "3": "is", "p": "are"}[agreement]
            return ("were" if agreement == "p" else "was") if past else present
        if past:
            return self.en_past
        if agreement != "3":
            return self.en
        return "has" if self.en == "have" else english_s(self.en)

    def german(self, agreement, past=False):
        if past:
            plural = "n" if self.past.endswith("e") else "en"
            return self.past + plural * (agreement == "p")
        if agreement == "3":
            return self.third
        if agreement == "p":
            return "sind" if self.infinitive == "sein" else self.infinitive
        irregular = {"sein": "bin", "wissen": "weiß"}
        return irregular.get(self.infinitive) or _stem(self.infinitive) + "e"

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
        reflexive, governs, preposition,
        tuple(noun for kind in objects.split() for noun in NOUNS.get(kind) or [NOUN[kind]]),
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


def verbs_with(noun):
    return [verb for verb in TRANSITIVE if noun in verb.objects]
