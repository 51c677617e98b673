"""A vision transformer on digits: patches of an image as a sequence, with learned positions, on any
backend.

    python examples/layers/vision_transformer.py

Dosovitskiy et al. 2021 in the small: each image of 28 x 28 pixels becomes 49 patches, an encoder
relates them to each other, and their mean is classified. The digits are drawn here: stretched,
slanted, moved, and covered with noise.
"""

import argparse

import keras
import numpy as np

from keras_transformer import Encoder, PositionalEncoding

SIZE, PATCH = 28, 4
# Each digit in 7 rows of 5 pixels, the bits of two hexadecimal digits.
FONT = """0E11131519110E 040C040404040E 0E11010204081F 1F02040201110E 02060A121F0202
    1F101E0101110E 0608101E11110E 1F010204080808 0E11110E11110E 0E11110F01020C""".split()
DIGITS = np.array(
    [[[row >> bit & 1 for bit in (4, 3, 2, 1, 0)] for row in bytes.fromhex(rows)] for rows in FONT]
)


def draw_digits(count, seed):
    """Returns images (count, SIZE, SIZE, 1) and the digits on them."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(10, size=count)
    # For each pixel of an image the row and the column of the font that is drawn there.
    height, width = generator.uniform(2, 3.8, (2, count, 1, 1))
    slant = generator.uniform(-0.3, 0.3, (count, 1, 1))
    top, left = (
        generator.uniform(0, 1, (count, 1, 1)) * (SIZE - size) for size in (7 * height, 5 * width)
    )
    y, x = np.mgrid[:SIZE, :SIZE]
    rows = np.floor((y - top) / height).astype(int)
    columns = np.floor((x - left + slant * (y - top - 3.5 * height)) / width).astype(int)
    inside = (rows >= 0) & (rows < 7) & (columns >= 0) & (columns < 5)
    images = inside * DIGITS[labels[:, None, None], rows.clip(0, 6), columns.clip(0, 4)]
    return (images + generator.normal(0, 0.3, images.shape))[..., None].astype("float32"), labels


def build_model(d_model=64):
    images = keras.Input((SIZE, SIZE, 1))
    patches = keras.layers.Conv2D(d_model, PATCH, strides=PATCH)(images)
    patches = keras.layers.Reshape((-1, d_model))(patches)
    hidden = PositionalEncoding("learned", max_length=(SIZE // PATCH) ** 2, dropout=0.1)(patches)
    hidden = Encoder(
        num_layers=4, num_heads=4, d_ff=4 * d_model, activation="gelu", norm_first=True
    )(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(images, keras.layers.Dense(10)(hidden))


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--epochs", type=int, default=20)
    epochs = parser.parse_args().epochs

    keras.utils.set_random_seed(1)
    images, labels = draw_digits(6000, seed=1)
    model = build_model()
    model.compile(
        keras.optimizers.AdamW(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(images, labels, batch_size=64, epochs=epochs, verbose=2)

    new_images, new_labels = draw_digits(1000, seed=2)
    guesses = model.predict(new_images, verbose=0).argmax(axis=-1)
    print(f"drawn:  {new_labels[:20]}\nguessed: {guesses[:20]}")
    print(f"accuracy on new digits: {np.mean(guesses == new_labels):.3f}")


if __name__ == "__main__":
    main()
