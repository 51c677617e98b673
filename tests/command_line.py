"""What the tests of commands have in common: a small text, and how commands run in a process of
their own."""

import subprocess
import sys

ENGLISH = "the dog runs\na cat sleeps\n"
GERMAN = "der hund rennt\neine katze schläft\n"


def train_arguments(text, source=ENGLISH, target=GERMAN, **options):
    arguments = {
        "--source": text("train.en", source),
        "--target": text("train.de", target),
        "--valid-source": text("valid.en", ENGLISH),
        "--valid-target": text("valid.de", GERMAN),
        "--config": "demo",
        **options,
    }
    return [part for pair in arguments.items() for part in pair]


def run_command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer", *map(str, arguments)],
        capture_output=True,
        **options,
    )
