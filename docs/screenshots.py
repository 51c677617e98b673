"""Takes pictures of the pages that commands open, in headless Chromium.

PYTHONPATH=tests python -m docs.screenshots MODEL_DIR DIRECTORY
"""

import pathlib
import subprocess
import sys
import tempfile

from browser import Browser, browser

from docs.pictures import SENTENCE, sign_screenshot

# The sixth word or token, such as "gekauft", or the last if there are fewer.
SIXTH = "button:nth-of-type(6), button:last-of-type"
# Resolves when an element appears.
APPEARS = """
const [selector, done] = arguments;
const look = () => { if (document.querySelector(selector)) { observer.disconnect(); done(); } };
const observer = new MutationObserver(look);
observer.observe(document.body, {childList: true, subtree: true, attributes: true});
look();
"""


def wait_for(page: Browser, selector: str) -> None:
    page.request("/execute/async", {"script": APPEARS, "args": [selector]})


def serve(page: Browser, model_dir: str, path: pathlib.Path) -> None:
    """A sentence, its translations, and where the sixth word of the best one comes from."""
    command = ["keras-transformer", "serve", "--model-dir", model_dir, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().split()[0]
            page.look(720, 540)
            page.open(address)
            page.press(*SENTENCE)
            wait_for(page, "main:has(#status:empty) li:nth-child(4)")
            page.point(f"li:first-child :is({SIXTH})", click=True)
            wait_for(page, ".source small")
            page.screenshot(path)
        finally:
            server.terminate()


def attention(page: Browser, model_dir: str, path: pathlib.Path) -> None:
    """The page of `plot --text`, with the sixth token chosen."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "attention.html")
        command = ["keras-transformer", "plot", "--model-dir", model_dir]
        command += ["--text", SENTENCE, "--output", str(output)]
        subprocess.run(command, check=True)
        page.look(900, 600)
        page.open(output.as_uri())
        page.point(f"#queries :is({SIXTH})", click=True)
        page.screenshot(path)


def main() -> None:
    model_dir, directory = sys.argv[1:]
    with browser() as page:
        for name, take in {"serve": serve, "attention-page": attention}.items():
            path = pathlib.Path(directory, f"{name}.png")
            take(page, model_dir, path)
            sign_screenshot(path)
            print(path)


if __name__ == "__main__":
    main()
