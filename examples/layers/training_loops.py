"""The classifier of text_classification.py in training loops of the user's own, one for each
backend.

    KERAS_BACKEND=torch python examples/layers/training_loops.py    # or jax, or tensorflow

On PyTorch a Keras model is a `torch.nn.Module`, on JAX a pure function of its variables, and on
TensorFlow a `tf.Module`: `fit` is one way to train it, and these are the others.
"""

import argparse

import keras
import numpy as np
from text_classification import build_model, reviews, token_ids

BATCH_SIZE = 32


def train_with_torch(model, batches):
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for inputs, labels in batches:
        optimizer.zero_grad()
        probabilities = model(torch.from_numpy(inputs), training=True)[:, 0]
        loss = torch.nn.functional.binary_cross_entropy(probabilities, torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        yield loss.item()


def train_with_jax(model, batches):
    import jax

    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)

    def loss_of(trainable, non_trainable, inputs, labels):
        # The non-trainable variables are the seeds of dropout.
        probabilities, non_trainable = model.stateless_call(
            trainable, non_trainable, inputs, training=True
        )
        return keras.ops.mean(
            keras.losses.binary_crossentropy(labels[:, None], probabilities)
        ), non_trainable

    @jax.jit
    def step(state, inputs, labels):
        trainable, non_trainable, optimizer_variables = state
        (loss, non_trainable), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            trainable, non_trainable, inputs, labels
        )
        trainable, optimizer_variables = optimizer.stateless_apply(
            optimizer_variables, gradients, trainable
        )
        return loss, (trainable, non_trainable, optimizer_variables)

    variables = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state = tuple([variable.value for variable in group] for group in variables)
    for inputs, labels in batches:
        loss, state = step(state, inputs, labels)
        yield float(loss)
    for group, values in zip(variables, state):
        for variable, value in zip(group, values):
            variable.assign(value)


def train_with_tensorflow(model, batches):
    import tensorflow as tf

    optimizer = keras.optimizers.Adam(1e-3)

    @tf.function(reduce_retracing=True)
    def step(inputs, labels):
        with tf.GradientTape() as tape:
            probabilities = model(inputs, training=True)
            loss = tf.reduce_mean(keras.losses.binary_crossentropy(labels[:, None], probabilities))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    for inputs, labels in batches:
        yield float(step(inputs, labels))


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=1200)
    steps = parser.parse_args().steps

    keras.utils.set_random_seed(1)
    model = build_model()
    texts, labels = reviews(steps * BATCH_SIZE, seed=1)
    batches = zip(
        token_ids(texts).reshape(steps, BATCH_SIZE, -1),
        labels.reshape(steps, BATCH_SIZE).astype("float32"),
    )
    train = {"torch": train_with_torch, "jax": train_with_jax, "tensorflow": train_with_tensorflow}
    for number, loss in enumerate(train[keras.backend.backend()](model, batches), start=1):
        if number % 100 == 0:
            print(f"step {number}: loss {loss:.4f}")

    new_texts, new_labels = reviews(1000, seed=2)
    probabilities = keras.ops.convert_to_numpy(model(token_ids(new_texts)))[:, 0]
    print(f"accuracy on new reviews: {np.mean((probabilities > 0.5) == new_labels):.3f}")


if __name__ == "__main__":
    main()
