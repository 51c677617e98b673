"""Headless Chromium for tests of pages, by the WebDriver protocol; needs the programs chromium and
chromedriver.

Tests of all pages also need axe-core, which looks for what keeps people with disabilities from
using a page:

make docs && npm install --no-save --prefix build/axe axe-core@4.14.1
.venv/bin/python -m pytest -m "" tests/pages tests/*/test_*_in_chromium.py
"""

import base64
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request

IS_INSTALLED = all(map(shutil.which, ("chromium", "chromedriver")))
AXE = (
    pathlib.Path(__file__).parents[1] / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
)
_FLAGS = [
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
KEYS = {
    "Tab": "\ue004",
    "End": "\ue010",
    "Home": "\ue011",
    "Left": "\ue012",
    "Up": "\ue013",
    "Right": "\ue014",
}
KEYS |= {"Down": "\ue015", "Enter": "\ue007"}


class Browser:
    """A page in headless Chromium."""

    def __init__(self, address):
        self._address = address
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._session = ""

    def request(self, path, body=None, method="POST"):
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(
            f"{self._address}{self._session}{path}", data, method=method
        )
        try:
            with self._opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {json.load(error)['value']['message']}") from None

    def begin(self, profile):
        options = {
            "args": [*_FLAGS, f"--user-data-dir={profile}"],
            "binary": shutil.which("chromium"),
        }
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self.request("/session", {"capabilities": {"alwaysMatch": capabilities}})
        self._session = f"/session/{session['sessionId']}"

    def end(self):
        self.request("", method="DELETE")

    def devtools(self, command, **parameters):
        return self.request("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, width=1200, height=800, dark=False):
        """Sets the size of the window, and the theme."""
        size = dict(width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        self.request("/url", {"url": url})

    def run(self, script):
        """Runs JavaScript, and returns what it returns."""
        return self.request("/execute/sync", {"script": script, "args": []})

    def press(self, *names):
        """Presses keys, one after the other."""
        keys = [KEYS.get(name, name) for name in names]
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.request("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def point(self, selector, click=False):
        """Moves the mouse to the middle of an element that is seen, and clicks."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.run(
            f"const box = {box}; return [box.left + box.width / 2, box.top + box.height / 2];"
        )
        actions = [{"type": "pointerMove", "x": round(x), "y": round(y)}]
        actions += (
            [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")] if click else []
        )
        self.request(
            "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]}
        )

    def messages(self):
        """Returns what the page has written to the console, errors of its script and its policy
        among them."""
        return [entry["message"] for entry in self.request("/se/log", {"type": "browser"})]

    def faults(self):
        """Returns what axe-core finds serious or critical, each as its rule and the elements."""
        self.run(AXE.read_text(encoding="utf-8"))
        script = (
            "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(found => "
            "done(found.violations))"
        )
        return [
            (fault["id"], [node["html"] for node in fault["nodes"]])
            for fault in self.request("/execute/async", {"script": script, "args": []})
            if fault["impact"] in ("serious", "critical")
        ]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.request("/screenshot", method="GET")))


@contextlib.contextmanager
def browser():
    """Starts Chromium, and ends it."""
    with tempfile.TemporaryDirectory() as profile:
        driver = subprocess.Popen(
            [shutil.which("chromedriver"), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            for line in driver.stdout:
                if started := re.search(r"started successfully on port (\d+)", line):
                    break
            page = Browser(f"http://127.0.0.1:{started[1]}")
            page.begin(profile)
            try:
                yield page
            finally:
                page.end()
        finally:
            driver.terminate()
            driver.communicate()
