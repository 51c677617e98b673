"""Files of release 0.2.0, which later releases must read. They are in tests/data/release_0_2_0.

python -m tests.package.test_release_files    # writes them anew, with the installed release
"""

import json
import pathlib

import keras
import numpy as np

from keras_transformer import Translator
from keras_transformer.config import Config, TokenizerConfig, TransformerConfig
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import save_weights
from keras_transformer.model_dir.shortlist_file import Shortlist, write_shortlist
from keras_transformer.models import build_transformer
from keras_transformer.training.batches.vocabulary import train_tokenizer

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "release_0_2_0"
TEXTS = ["A dog runs.", "Two women sit on a bench.", ""]
INPUTS = {"source": np.array([[5, 6, 7, 3]]), "target": np.array([[2, 8, 9]])}


def write(folder):
    keras.utils.set_random_seed(1)
    tokenizer = train_tokenizer(TEXTS, "bpe", 290)
    size = tokenizer.vocab_size
    config = TransformerConfig(
        size, size, num_layers=1, d_model=8, d_ff=16, num_heads=2, max_length=12
    )
    model = build_transformer(config, dtype="float32")
    # The decisions of the search are far from equal, so that rounding changes none.
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(random.normal(size=weight.shape))
    model_dir = ModelDir(folder / "model")
    model_dir.path.mkdir(parents=True)
    tokenizer.save(model_dir.path / tokenizer.filename)
    model_dir.write_config(Config(config, TokenizerConfig("bpe", size)))
    save_weights(model, model_dir.best_path)
    shortlist = Shortlist(
        np.tile(np.arange(size - 20, size, dtype="int32"), (size, 1)), np.arange(4, dtype="int32")
    )
    write_shortlist(model_dir.shortlist_path, shortlist, [tokenizer.file_content])
    model.save(folder / "model.keras")
    (folder / "expected.json").write_text(json.dumps(results(folder), indent=1) + "\n")


def results(folder):
    model_dir = ModelDir(folder / "model")
    translations = {
        name: [
            hypothesis
            for result in Translator.load(model_dir, shortlist=shortlist).translate(TEXTS)
            for hypothesis in result.hypotheses
        ]
        for name, shortlist in (("all tokens", False), ("shortlist", True))
    }
    logits = keras.saving.load_model(folder / "model.keras")(INPUTS)
    return {**translations, "logits": keras.ops.convert_to_numpy(logits)[0, :, :5].tolist()}


def test_files_of_release_0_2_0_give_the_translations_scores_and_logits_that_they_gave():
    expected = json.loads((FOLDER / "expected.json").read_text())
    received = json.loads(json.dumps(results(FOLDER)))
    np.testing.assert_allclose(received["logits"], expected["logits"], rtol=1e-4, atol=1e-5)
    for name in ("all tokens", "shortlist"):
        assert [text for text, _ in received[name]] == [text for text, _ in expected[name]]
        scores = [[score for _, score in each[name]] for each in (received, expected)]
        np.testing.assert_allclose(*scores, rtol=1e-4)


if __name__ == "__main__":
    write(FOLDER)
