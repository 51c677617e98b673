"""Abbreviations after which a sentence goes on, by language.

Single letters ("J. Smith", "z. B.", "U.S.") need no entry. Abbreviations that end sentences as often as not, such as
"etc.", have none: a sentence that is divided there costs less than two that stay one.
"""

from ..config.values import Language

ABBREVIATIONS: dict[Language, tuple[str, ...]] = {
    "ar": (),
    "cs": ("Bc", "Ing", "JUDr", "Mgr", "MUDr", "např", "PhDr", "prof", "doc", "sv", "tj", "tzv", "ul"),
    "da": ("bl.a", "ca", "dr", "evt", "f.eks", "hr", "kl", "prof", "skt"),
    "de": (
        "bspw", "bzgl", "bzw", "ca", "Dipl", "Dr", "ehem", "evtl", "Fr", "geb", "gegr", "ggf", "Hr", "Hrn", "Ing",
        "inkl", "insb", "jr", "lt", "med", "Mio", "Mrd", "Prof", "sog", "St", "Str", "vgl", "zzgl",
    ),
    "el": ("κ", "κα", "π.χ"),
    "en": (
        "approx", "Ave", "Blvd", "Capt", "cf", "Cmdr", "Col", "Dr", "e.g", "Gen", "Gov", "Hon", "i.e", "Lt", "Maj",
        "Messrs", "Mr", "Mrs", "Ms", "Mt", "Prof", "Rep", "Rev", "Sen", "Sgt", "St", "viz", "vs",
    ),
    "es": (
        "Av", "Avda", "Dr", "Dra", "Dña", "Excmo", "Gral", "Ilmo", "Lic", "p.ej", "Prof", "Sr", "Sra", "Srta", "Ud",
        "Uds",
    ),
    "fi": ("esim", "mm", "ns", "prof", "tri"),
    "fr": (
        "av", "boul", "c.-à-d", "cf", "Dr", "env", "Me", "Mgr", "MM", "Mme", "Mmes", "Mlle", "Mlles", "Pr", "St", "Ste",
    ),
    "hi": ("डॉ", "श्री"),
    "hu": ("dr", "ifj", "kb", "özv", "pl", "prof", "stb", "ún"),
    "it": ("Arch", "Avv", "ca", "cfr", "Dott", "Dr", "Geom", "Ing", "On", "p.es", "Prof", "Rag", "Sig", "Sigg"),
    "ja": (),
    "ko": (),
    "nb": ("bl.a", "ca", "dr", "f.eks", "hr", "kl", "prof"),
    "nl": ("bijv", "bv", "ca", "dhr", "dr", "drs", "evt", "ing", "ir", "mevr", "mr", "mw", "prof", "St", "t.a.v"),
    "pl": ("dr", "inż", "mgr", "np", "prof", "płk", "św", "tzn", "tzw", "ul"),
    "pt": ("Av", "Dr", "Dra", "Eng", "Exmo", "p.ex", "Prof", "Profa", "Sr", "Sra", "Srta", "Sto"),
    "ro": ("dl", "dna", "dr", "ing", "prof", "str"),
    "ru": ("акад", "гос", "гр", "др", "им", "ок", "пр", "проф", "см", "ср", "т.е", "ул"),
    "sv": ("bl.a", "ca", "dr", "d.v.s", "f.ö", "kl", "prof", "s.k", "t.ex"),
    "tr": ("Av", "Doç", "Dr", "örn", "Prof", "Sn", "vb"),
    "uk": ("акад", "див", "ім", "напр", "проф", "т.зв", "вул"),
    "zh": (),
}  # fmt: skip

# Before a number only, in any language: "No. 5", "Art. 3", "S. 12".
BEFORE_NUMBERS = (
    "Abb", "Abs", "Art", "Bd", "cap", "ch", "fig", "Kap", "n", "no", "nos", "Nr", "núm", "p", "par", "pp", "sec", "S",
    "t", "Tab", "vol", "č", "s", "стр",
)  # fmt: skip

# Languages that write "3rd" as "3.".
WITH_ORDINAL_DOTS: frozenset[Language] = frozenset({"cs", "da", "de", "fi", "hu", "nb", "pl", "tr"})
