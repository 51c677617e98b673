"""Translates standard input by a server's REST API; needs nothing but Python.

    keras-transformer serve --model-dir models/en-de &
    python examples/rest_client.py --url http://localhost:8501/v1/models/en-de < in.txt > out.txt

The server is TensorFlow Serving, or `keras-transformer serve`, which gives the same answers.
"""

import argparse
import itertools
import json
import sys
import urllib.error
import urllib.request

LINES_PER_REQUEST = 32


def ask(url, body=None):
    """Returns the server's answer to a request: POST with a body, GET without one."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        # What is wrong with the request is said in the answer's body.
        sys.exit(f"{url}: {error.code} {json.load(error)['error']}")
    except OSError as error:  # no server, or no answer in time
        sys.exit(f"{url}: {getattr(error, 'reason', error)}")


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--url", default="http://localhost:8501/v1/models/en-de")
    arguments = parser.parse_args()

    # A version becomes available after the server has loaded it.
    states = [version["state"] for version in ask(arguments.url)["model_version_status"]]
    if "AVAILABLE" not in states:
        sys.exit(f"{arguments.url}: {', '.join(states)}")
    lines = (line.rstrip("\n") for line in sys.stdin)
    while texts := list(itertools.islice(lines, LINES_PER_REQUEST)):
        request = {
            "signature_name": "serving_default",
            "instances": [{"text": text} for text in texts],
        }
        for text, answer in zip(texts, ask(f"{arguments.url}:predict", request)["predictions"]):
            print(answer["text"], flush=True)
            if answer["truncated"]:
                print(f"the end was not read: {text[:60]}…", file=sys.stderr)


if __name__ == "__main__":
    main()
