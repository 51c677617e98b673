"""Translates a field of a large file of JSON lines, in little memory; started again, it goes on
where it was stopped.

    python -m examples.batch_translation MODEL_DIR texts.jsonl translated.jsonl --field text

Each line is an object, which gets the fields "translation", "score" and "truncated". A block of
lines is one request: the translator sorts its texts by length and searches them in batches that use
all cores, so that long texts do not hold up short ones. Texts that a block has several times are
translated once.
"""

import argparse
import itertools
import json

from keras_transformer import Translator

LINES_PER_BLOCK = 2048


def blocks(lines):
    lines = iter(lines)
    while block := list(itertools.islice(lines, LINES_PER_BLOCK)):
        yield [json.loads(line) for line in block]


def translate(translator, rows, field):
    """Adds to each row the translation of its text."""
    texts = list(dict.fromkeys(row[field] for row in rows))
    translation_of = dict(zip(texts, translator.translate(texts)))
    for row in rows:
        translation = translation_of[row[field]]
        ((row["translation"], row["score"]),) = translation.hypotheses
        row["truncated"] = translation.source_length > translator.model.config.max_length
    return rows


def lines_that_are_complete(path):
    """Returns how many lines a file has, and cuts off what comes after the last one."""
    with open(path, "ab+") as file:
        file.seek(0)
        lengths = [len(line) for line in file if line.endswith(b"\n")]
        file.truncate(sum(lengths))
    return len(lengths)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model_dir")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--field", default="text")
    arguments = parser.parse_args()

    translator = Translator.load(arguments.model_dir)
    done = lines_that_are_complete(arguments.output)
    if done:
        print(f"{done:,} lines are there already")
    with (
        open(arguments.input, encoding="utf-8") as source,
        open(arguments.output, "a", encoding="utf-8") as target,
    ):
        for rows in blocks(itertools.islice(source, done, None)):
            target.writelines(
                json.dumps(row, ensure_ascii=False) + "\n"
                for row in translate(translator, rows, arguments.field)
            )
            target.flush()
            done += len(rows)
            print(f"{done:,} lines")


if __name__ == "__main__":
    main()
