"""The page to try a model as a person uses it. Needs Debian's packages chromium and
chromium-driver."""

import pytest
from test_server import graphs_of, running

pytestmark = pytest.mark.slow
# Resolves when the page shows what it is to show; `isShown` is called after every change.
UNTIL_SHOWN = """
const done = arguments[arguments.length - 1];
const look = () => { if (isShown(...arguments)) { observer.disconnect(); done(); } };
const observer = new MutationObserver(look);
observer.observe(document.body, {childList: true, subtree: true, characterData: true, attributes: true});
look();
"""
# Whether these are translations of as many lines, with a text among them.
TRANSLATIONS_ARE_SHOWN = """
const isShown = (number, text) => {
  const translations = document.getElementById("translations");
  const isReady = translations.querySelectorAll("ol").length === number && translations.textContent.includes(text);
  // Not the translation of the beginning of what was typed.
  const sources = [...translations.querySelectorAll(".source")].map(source => source.textContent).join(" ");
  const isWhole = wordsOf(sources).join(" ") === wordsOf(document.getElementById("text").value).join(" ");
  return isReady && isWhole && !document.getElementById("status").textContent;
};
"""
WORD_IS_PRESSED = (
    "const isShown = word => document.querySelector('[aria-pressed=true]')?.textContent === word;"
)


@pytest.fixture(scope="module")
def port(translator):
    with running(graphs_of(translator)) as port:
        yield port


def wait(page, number, text=""):
    page.request(
        "/execute/async", {"script": TRANSLATIONS_ARE_SHOWN + UNTIL_SHOWN, "args": [number, text]}
    )


def wait_for_alignment(page, word):
    page.request("/execute/async", {"script": WORD_IS_PRESSED + UNTIL_SHOWN, "args": [word]})


def best(page):
    return page.run(
        "return [...document.querySelectorAll('li:first-child .text p')].map(e => "
        "e.textContent.trim())"
    )


def percents(page):
    """The words of the source above its translations, with their percentages; those below 10 have
    none."""
    words = "return [...document.querySelectorAll('.source span')]"
    shown = page.run(
        f"{words}.map(span => [span.childNodes[0].data, span.children[0]?.textContent])"
    )
    return [(word, percent and int(percent.removesuffix("%"))) for word, percent in shown]


def expected_percents(translator, source, target, tokens):
    """The same for tokens of the target, by `Translator.align`, for a source of which each word
    begins with a sign."""
    (alignment,) = translator.align([source], [target])
    weights = dict.fromkeys(range(len(source.split())), 0.0)
    word = -1
    for piece, weight in zip(alignment.source[:-1], alignment.attention[tokens].mean(axis=0)):
        word += piece.startswith("▁")
        weights[word] += weight
    percents = [int(100 * weight + 0.5) for weight in weights.values()]
    return [
        (word, percent if percent >= 10 else None)
        for word, percent in zip(source.split(), percents)
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_translations_appear_while_one_types(page, port, width, dark):
    page.look(width, 800, dark)
    page.open(f"http://localhost:{port}/")
    assert page.run("return document.activeElement.id") == "text"
    page.press(*"Anna sees a tree.")
    wait(page, 1, "Anna hat einen Baum, sieht!")
    assert best(page) == ["Anna hat einen Baum, sieht!"]
    page.press(*" Zoë buys two apples.", "Enter", "Enter", *"<b>🐶 כלב")
    wait(page, 3, "Zoë hat zwei Äpfel, kauft!")
    assert best(page)[:2] == ["Anna hat einen Baum, sieht!", "Zoë hat zwei Äpfel, kauft!"]
    sources = page.run(
        "return [...document.querySelectorAll('.source')].map(line => line.textContent.trim())"
    )
    assert sources == ["Anna sees a tree.", "Zoë buys two apples.", "<b>🐶 כלב"]
    page.run(
        "const box = document.getElementById('text'); box.value = 'a'.repeat(3000);"
        "box.dispatchEvent(new Event('input'))"
    )
    wait(page, 1, "too long")
    assert page.run("return document.documentElement.scrollWidth") == width
    page.run(
        "const box = document.getElementById('text'); box.value = ' '; box.dispatchEvent(new "
        "Event('input'))"
    )
    wait(page, 0)
    assert page.messages() == []
    fetched = page.run("return performance.getEntriesByType('resource').map(each => each.name)")
    assert {*fetched} == {f"http://localhost:{port}/v1/models/tiny:predict"}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_a_word_shows_where_it_comes_from(page, port, translator, width, dark):
    source, target = "Zoë buys two apples.", "Zoë hat zwei Äpfel, kauft!"
    page.look(width, 800, dark)
    page.open(f"http://localhost:{port}/")
    # The page does so too, but perhaps after the first keys.
    page.run("document.getElementById('text').focus()")
    page.press(*source)
    wait(page, 1, target)
    pieces = translator.align([source], [target])[0].target
    words = []
    for i, piece in enumerate(pieces[:-1]):
        if piece.startswith("▁"):
            words.append([])
        words[-1].append(i)
    expected = [expected_percents(translator, source, target, tokens) for tokens in words]
    assert len({*map(str, expected)}) > 1

    page.point("li:first-child button:nth-of-type(4)", click=True)
    wait_for_alignment(page, "Äpfel,")
    assert percents(page) == expected[3]
    page.press("Left", "Left", "Enter")
    wait_for_alignment(page, "hat")
    assert percents(page) == expected[1]
    page.run("document.getElementById('text').focus()")
    page.press("Tab", "Right", "Right", "Right", "Right", "Right", " ")
    wait_for_alignment(page, "kauft!")
    assert percents(page) == expected[4]
    assert page.run("return document.querySelectorAll('.source').length") == 1
    assert page.run("return document.documentElement.scrollWidth") == width
    assert page.messages() == []


# Tokens as they are, and the bytes of a character that a vocabulary lacks.
PLACES = """return [
  placesOf(["\u2581Ein", "\u2581H", "und", ".", "</s>"], ["Ein", "Hund."]),
  placesOf(["\u2581", "<0xF0>", "<0x9F>", "<0x90>", "<0xB6>", "\u2581כלב", "</s>"], ["🐶", "כלב"]),
  placesOf(["Ein", "Hun", "##d", ".", "</s>"], ["Ein", "Hund", "."]),
  placesOf(["\u2581##", "\u2581a"], ["##", "a"]),
]"""


def test_words_are_told_from_tokens(page, port):
    page.open(f"http://localhost:{port}/")
    assert page.run(PLACES) == [[0, 1, 1, 1, -1], [0, 0, 0, 0, 0, 1, -1], [0, 1, 1, 2, -1], [0, 1]]


def test_lines_are_divided_into_sentences(page, port):
    page.open(f"http://localhost:{port}/")
    divided = page.run(
        "return sentencesOf('Dr. A. Smith, i.e. he, runs!  No. 5. \\n\\nIs it a dog? Yes. ')"
    )
    assert divided == ["Dr. A. Smith, i.e. he, runs!", "No. 5.", "Is it a dog?", "Yes."]
    # The last letter of a word may follow a vowel mark; "د." is an initial.
    sentences = ["رأيت الجِك.", "هو د. محمد.", "தமிழின.", "ஆம்."]
    assert page.run(f"return sentencesOf('{' '.join(sentences)}')") == sentences


def test_scripts_without_spaces_are_divided_into_words(page, port):
    page.open(f"http://localhost:{port}/")
    words = page.run("return ['A dog runs.', '狗在公园里跑。 好', '犬が走る。'].map(wordsOf)")
    assert words[0] == ["A ", "dog ", "runs. "]
    assert words[1] == ["狗", "在", "公园", "里", "跑。 ", "好 "]
    assert words[2][:2] == ["犬", "が"] and "".join(words[2]) == "犬が走る。 "
    places = page.run(
        "return placesOf(['\u2581狗', '在公园', '里跑', '</s>'], wordsOf('狗在公园里跑'))"
    )
    assert places == [0, 1, 3, -1]
