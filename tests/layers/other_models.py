"""A user's models with our layers. A script, run in one process per backend:

python other_models.py train MODELS DIRECTORY POLICY     trains models of a dtype policy, writes them and their outputs
python other_models.py load MODELS OUTPUT DIRECTORY...   loads such files, writes their outputs

MODELS are names, separated by commas.
"""

import json
import os
import pathlib
import sys

if os.environ["KERAS_BACKEND"] != "tensorflow":
    sys.modules["tensorflow"] = None  # From here on an import of TensorFlow fails.

import keras
import numpy as np

import keras_transformer

VOCAB_SIZE, WIDTH = 12, 16
generator = np.random.default_rng(0)
TOKEN_IDS = generator.integers(1, VOCAB_SIZE, size=(64, 9))
TOKEN_IDS[::2, -3:] = 0
HAS_A_FIVE = np.any(TOKEN_IDS == 5, axis=1).astype("int32")
# The next token is the sum of the last two.
SUMS = (TOKEN_IDS + np.pad(TOKEN_IDS, ((0, 0), (1, 0)))[:, :-1]) % (VOCAB_SIZE - 1) + 1
SUMS[TOKEN_IDS == 0] = 0


def classifier():
    """Functional: does the sentence hold a five?"""
    token_ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(VOCAB_SIZE, WIDTH, mask_zero=True)(token_ids)
    hidden = keras_transformer.EncoderLayer(num_heads=2, d_ff=32, dropout=0.0)(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    probability = keras.layers.Dense(1, activation="sigmoid", dtype="float32")(hidden)
    return keras.Model(token_ids, probability), HAS_A_FIVE, "binary_crossentropy"


def language_model():
    """Functional: which token comes next?"""
    token_ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(VOCAB_SIZE, WIDTH, mask_zero=True)(token_ids)
    hidden = keras_transformer.DecoderLayer(num_heads=2, d_ff=32, dropout=0.0)(hidden)
    logits = keras.layers.Dense(VOCAB_SIZE)(hidden)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.Model(token_ids, logits), SUMS, loss


def tied_language_model():
    """Functional: the same, with our positions, and logits from the table of the embedding."""
    token_ids = keras.Input((None,), dtype="int32")
    embedding = keras_transformer.PositionalEmbedding(VOCAB_SIZE, WIDTH)
    hidden = keras_transformer.Decoder(num_layers=1, num_heads=2, d_ff=32, dropout=0.0)(embedding(token_ids))
    logits = keras_transformer.TiedProjection(embedding)(hidden)
    return keras.Model(token_ids, logits), SUMS, keras_transformer.MaskedLabelSmoothedCrossentropy()


def subclassed_language_model():
    """Subclassed, with our positions and our loss."""

    @keras.saving.register_keras_serializable("somebody_else")
    class LanguageModel(keras.Model):
        def __init__(self, vocab_size, **kwargs):
            super().__init__(**kwargs)
            self.vocab_size = vocab_size
            dtype = self.dtype_policy
            self.embedding = keras_transformer.PositionalEmbedding(vocab_size, WIDTH, dtype=dtype)
            self.decoder = keras_transformer.DecoderLayer(2, d_ff=32, dropout=0.0, dtype=dtype)
            self.dense = keras.layers.Dense(vocab_size, dtype=dtype)

        def call(self, token_ids):
            return self.dense(self.decoder(self.embedding(token_ids)))

        def get_config(self):
            return {**super().get_config(), "vocab_size": self.vocab_size}

    loss = keras_transformer.MaskedLabelSmoothedCrossentropy()
    return LanguageModel(VOCAB_SIZE), SUMS, loss


def translator():
    config = keras_transformer.TransformerConfig.preset(
        "tiny", source_vocab_size=VOCAB_SIZE, target_vocab_size=VOCAB_SIZE, num_layers=1
    )
    model = keras_transformer.build_transformer(config)
    return model, SUMS, keras_transformer.MaskedLabelSmoothedCrossentropy()


MODELS = {
    "classifier": classifier,
    "language_model": language_model,
    "tied_language_model": tied_language_model,
    "translator": translator,
    "subclassed_language_model": subclassed_language_model,
}


def inputs(name):
    return {"source": TOKEN_IDS, "target": TOKEN_IDS} if name == "translator" else TOKEN_IDS


def predict(model, name):
    return keras.ops.convert_to_numpy(keras.ops.cast(model(inputs(name)), "float32"))


def train(models, directory, policy):
    keras.config.set_dtype_policy(policy)
    predictions, losses = {}, {}
    for name in models:
        keras.utils.set_random_seed(0)
        model, labels, loss = MODELS[name]()
        model.compile(keras.optimizers.Adam(0.01), loss)
        history = model.fit(inputs(name), labels, batch_size=32, epochs=10, verbose=0).history
        losses[name] = history["loss"]
        predictions[name] = predict(model, name)
        model.save(directory / f"{name}.keras")
    (directory / "losses.json").write_text(json.dumps(losses))
    np.savez(directory / "predictions.npz", **predictions)


def load(models, output, *directories):
    predictions = {}
    for name in models:
        if name == "subclassed_language_model":
            subclassed_language_model()  # Defines the class; all before came without definitions.
        for directory in directories:
            model = keras.saving.load_model(directory / f"{name}.keras")
            predictions[f"{directory}/{name}"] = predict(model, name)
    np.savez(output, **predictions)


if __name__ == "__main__":
    command, models, path, *others = sys.argv[1:]
    if command == "train":
        train(models.split(","), pathlib.Path(path), *others)
    else:
        load(models.split(","), pathlib.Path(path), *map(pathlib.Path, others))
