"""Fine-tunes a translator on a few hundred sentences of its users, and stops as soon as it has
learned them.

    python -m examples.fine_tuning MODEL_DIR NEW_MODEL_DIR

MODEL_DIR holds what examples/whole_path.py or `make demo` has trained. The new model writes as
people do in Switzerland, where "groß" is "gross". A Keras callback sees the scores of each
validation and decides when to stop.
"""

import argparse

import keras

from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.model_dir import ModelDir
from keras_transformer.runtime.progress import show_log
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs


class StopWhenGoodEnough(keras.callbacks.Callback):
    """Ends training after the validation that reaches a BLEU score."""

    def __init__(self, bleu):
        super().__init__()
        self.bleu = bleu

    def on_epoch_end(self, epoch, logs):
        print(
            f"after {logs['step']:.0f} updates: BLEU {logs['val_bleu']:.1f}, perplexity "
            f"{logs['val_perplexity']:.2f}"
        )
        if logs["val_bleu"] >= self.bleu:
            self.model.stop_training = True


def sentence_pairs(pairs, name):
    source, target = zip(*pairs)
    return SentencePairs(source, target, name)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model_dir", type=ModelDir)
    parser.add_argument("new_model_dir", type=ModelDir)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--bleu", type=float, default=80.0, help="training stops when it is reached"
    )
    arguments = parser.parse_args()

    # Of another seed: the model has not seen most of these sentences.
    swiss = [
        (english, german.replace("ß", "ss"))
        for english, german in generate(6_000, seed=1)
        if "ß" in german
    ]
    train_pairs, valid_pairs = (
        sentence_pairs(swiss[:300], "train"),
        sentence_pairs(swiss[300:350], "valid"),
    )
    english, german = swiss[350]

    # The model, its vocabulary and how it translates are taken over; the rest is in the recipe.
    config = load_recipe(
        "fine-tune",
        [
            f"training.steps={arguments.steps}",
            "training.validate_every=20",
            "training.peak_learning_rate=0.002",
        ],
        init_from=arguments.model_dir,
    )
    show_log()  # on standard error
    keras.utils.set_random_seed(config.training.seed)
    train(
        config,
        train_pairs,
        valid_pairs,
        arguments.new_model_dir,
        make_strategy(),
        init_from=arguments.model_dir,
        callbacks=[StopWhenGoodEnough(arguments.bleu)],
    )

    print(f"{english}\n    expected: {german}")
    for name, model_dir in ("before", arguments.model_dir), ("after", arguments.new_model_dir):
        (translation,) = Translator.load(model_dir)([english])
        print(f"    {name}: {translation}")


if __name__ == "__main__":
    main()
