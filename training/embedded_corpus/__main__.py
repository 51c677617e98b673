"""`python -m keras_transformer.training.embedded_corpus DIRECTORY` writes the corpus."""

import argparse

from .generator import write

parser = argparse.ArgumentParser(description="Write the embedded English-German corpus.")
parser.add_argument("directory", metavar="DIRECTORY")
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()
for path in write(arguments.directory, seed=arguments.seed):
    print(path)
