"""The page to try a model as a person uses it. Needs Debian's packages chromium and chromium-driver."""

import browser
import pytest
from test_server import running

from keras_transformer.translation import Translator

pytestmark = pytest.mark.slow
# Resolves when the page shows translations of as many lines, with a text among them.
SHOWN = """
const [number, text, done] = arguments, box = document.querySelector("main");
const look = () => {
  const translations = document.getElementById("translations");
  const isReady = translations.querySelectorAll("ol").length === number && translations.textContent.includes(text);
  if (isReady && !document.getElementById("status").textContent) { observer.disconnect(); done(); }
};
const observer = new MutationObserver(look);
observer.observe(box, {childList: true, subtree: true, characterData: true});
look();
"""


@pytest.fixture(scope="module")
def port(tiny_model_dir):
    with running(Translator.load(tiny_model_dir)) as port:
        yield port


@pytest.fixture(scope="module")
def page():
    with browser.browser() as page:
        yield page


def wait(page, number, text=""):
    page.request("/execute/async", {"script": SHOWN, "args": [number, text]})


def best(page):
    return page.run("return [...document.querySelectorAll('li:first-child span:first-child')].map(e => e.textContent)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_translations_appear_while_one_types(page, port, width, dark):
    page.look(width, 800, dark)
    page.open(f"http://localhost:{port}/")
    assert page.run("return document.activeElement.id") == "text"
    page.press(*"Anna sees a tree.")
    wait(page, 1, "Anna hat einen Baum, sieht!")
    assert best(page) == ["Anna hat einen Baum, sieht!"]
    page.press("Enter", "Enter", *"<b>🐶 כלב")
    wait(page, 2, "Anna hat einen Baum, sieht!")
    assert best(page)[0] == "Anna hat einen Baum, sieht!"
    page.run(
        "const box = document.getElementById('text'); box.value = 'a'.repeat(3000);"
        "box.dispatchEvent(new Event('input'))"
    )
    wait(page, 1, "too long")
    assert page.run("return document.documentElement.scrollWidth") == width
    page.run("const box = document.getElementById('text'); box.value = ' '; box.dispatchEvent(new Event('input'))")
    wait(page, 0)
    assert page.messages() == []
    fetched = page.run("return performance.getEntriesByType('resource').map(each => each.name)")
    assert {*fetched} == {f"http://localhost:{port}/translate"}
