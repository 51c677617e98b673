"""No page has a fault that axe-core calls serious, or is wider than its window. browser.py says how
to run this."""

import functools
import http.server
import pathlib
import re
import threading

import pytest
from test_attention_page_in_chromium import SENTENCES, attention_of
from test_curves import LOG, LOG_WITHOUT_BLEU, run_dir
from test_page_in_chromium import wait, wait_for_alignment
from test_server import graphs_of, running

from keras_transformer.training.curves import training_page
from keras_transformer.translation import Translator
from keras_transformer.translation.attention import attention_page

pytestmark = pytest.mark.slow
SITE = pathlib.Path(__file__).parents[2] / "build" / "docs"
PAGES = [
    "index.html",
    "tutorial.html",
    "notebooks/time_series.html",
    "layers.html",
    "results.html",
    "reference/layers.html",
]
in_both_themes = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
at_both_widths = pytest.mark.parametrize("width", [400, 1600])


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def site():
    """The address of the documentation as `make docs` has built it."""
    handler = functools.partial(QuietHandler, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def check(page, width):
    assert page.faults() == []
    assert page.run("return document.documentElement.scrollWidth") == width


def test_a_fault_is_found(page, tmp_path):
    (tmp_path / "a.html").write_text(
        "<!doctype html><html><title>A</title><img src='data:,'></html>"
    )
    page.open((tmp_path / "a.html").as_uri())
    assert [rule for rule, _ in page.faults()] == ["html-has-lang", "image-alt"]


@in_both_themes
@at_both_widths
@pytest.mark.parametrize("name", SENTENCES)
def test_the_page_of_attention(page, name, width, dark, tmp_path):
    (tmp_path / "a.html").write_text(
        attention_page(attention_of(SENTENCES[name]), "cross", 1, (0, 1)), "utf-8"
    )
    page.look(width, 900, dark)
    page.open((tmp_path / "a.html").as_uri())
    check(page, width)


@in_both_themes
@at_both_widths
def test_the_page_of_training(page, width, dark, tmp_path):
    logs = {
        "شبكة <b>": LOG
        + "".join(
            f"{i},0.0005,{5 - i / 20},{50 * i},0.5,{i / 2},{5 - i / 25},{200 / i}\n"
            for i in range(3, 60)
        ),
        "🐶" * 40: LOG_WITHOUT_BLEU,
    }
    (tmp_path / "a.html").write_text(
        training_page([run_dir(tmp_path / name, log) for name, log in logs.items()]), "utf-8"
    )
    page.look(width, 900, dark)
    page.open((tmp_path / "a.html").as_uri())
    said = "return [...document.querySelectorAll('.said')].map(one => one.textContent)"
    name = tmp_path / "شبكة <b>"
    assert page.run(said)[1:3] == [f"Step 2,950: {name} 3.39", f"Step 2,950: {name} 29.5"]
    page.press("Tab", "Tab", "Home")
    assert page.run(said)[1] == f"Step 30: {tmp_path / ('🐶' * 40)} 900"
    page.press("Right")
    assert page.run(said)[1] == f"Step 50: {name} 400"
    page.point("section:nth-child(1) svg")
    assert re.match(r"Step 1,[2-5]", page.run(said)[0])
    check(page, width)
    assert page.run("return performance.getEntriesByType('resource').length") == 0
    assert page.messages() == []


@pytest.fixture(scope="module")
def port(tiny_model_dir):
    with running(graphs_of(Translator.load(tiny_model_dir))) as port:
        yield port


@in_both_themes
@at_both_widths
def test_the_page_to_try_a_model(page, port, width, dark):
    page.look(width, 900, dark)
    page.open(f"http://localhost:{port}/")
    check(page, width)
    page.press(*"Anna sees a tree.", "Enter", *"🐶 כלב")
    wait(page, 2, "Anna hat einen Baum, sieht!")
    page.point("li:first-child button:nth-of-type(4)", click=True)
    wait_for_alignment(page, "Baum,")
    check(page, width)


@in_both_themes
@at_both_widths
@pytest.mark.parametrize("name", PAGES)
def test_the_documentation(page, site, name, width, dark):
    page.look(width, 900, dark)
    page.open(f"{site}/{name}")
    scheme = page.run("return document.body.getAttribute('data-md-color-scheme')")
    assert scheme == ("slate" if dark else "default")
    check(page, width)
    fetched = page.run("return performance.getEntriesByType('resource').map(each => each.name)")
    assert [address for address in fetched if not address.startswith((site, "data:"))] == []


FOUND = """
const done = arguments[0], search = document.querySelector(".md-search__input");
const look = () => {
  const links = [...document.querySelectorAll(".md-search-result__link")].map(one => one.getAttribute("href"));
  if (links.length) { observer.disconnect(); done(links); }
};
const observer = new MutationObserver(look);
observer.observe(document.body, {childList: true, subtree: true});
"""


def test_the_search_finds_a_name_without_a_network(page, site):
    page.look()
    page.open(f"{site}/index.html")
    page.run(
        "const box = document.querySelector('.md-search__input'); box.focus(); box.value = "
        "'PositionalEmbedding';"
        "box.dispatchEvent(new Event('keyup'))"
    )
    links = page.request("/execute/async", {"script": FOUND, "args": []})
    assert any("reference/layers.html" in link for link in links), links
    assert page.messages() == []
