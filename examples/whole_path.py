"""From text to a served translator, in Python: train, evaluate, translate, export, and translate as
a server does.

    python -m examples.whole_path DIRECTORY

The text is generated. For two files of your own, `training.text.corpus.read_pairs` returns the
pairs. Started again with the same directory, it goes on where it was stopped.
"""

import argparse
import pathlib

import keras
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the operations of the SavedModel)

from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.export.servable import export_servable
from keras_transformer.runtime.progress import show_log
from keras_transformer.training.evaluate import evaluate
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs


def sentence_pairs(pairs, name):
    source, target = zip(*pairs)
    return SentencePairs(source, target, name)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    model_dir, servable = arguments.directory / "model", arguments.directory / "servable"

    pairs = generate(12_300)
    train_pairs, valid_pairs = (
        sentence_pairs(pairs[:12_000], "train"),
        sentence_pairs(pairs[12_000:12_100], "valid"),
    )
    test_pairs = sentence_pairs(pairs[12_100:], "test")

    # A recipe of the package, or a YAML file, and what differs from it.
    config = load_recipe("demo", [f"training.steps={arguments.steps}"])
    show_log()  # on standard error
    strategy = make_strategy()  # all GPUs, or the CPU
    # Before anything is loaded or trained.
    keras.utils.set_random_seed(config.training.seed)
    train(config, train_pairs, valid_pairs, model_dir, strategy)

    translator = Translator.load(model_dir)
    quality = evaluate(translator, test_pairs)
    print(f"BLEU {quality.bleu.score:.1f}, chrF {quality.chrf.score:.1f}")
    for source, translation in zip(test_pairs.source[:3], quality.translations):
        print(f"{source}\n    {translation}")

    # What TensorFlow Serving loads: a folder for each version, with text for input and output.
    version = export_servable(translator, servable, signatures=["serving_default"])
    translate = tf.saved_model.load(version).signatures["serving_default"]
    served = [
        text.decode() for text in translate(text=tf.constant(test_pairs.source))["text"].numpy()
    ]
    same = sum(a == b for a, b in zip(served, quality.translations))
    print(f"{version} translates {same} of {len(served)} sentences as the translator does")


if __name__ == "__main__":
    main()
