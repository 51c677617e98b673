"""Greedy search by one call for each new token, without a cache and without padding."""

import numpy as np
from keras import ops

VOCAB_SIZE, D_MODEL = 11, 8
PROMPTS = [[3, 4, 5], [7], [1, 2, 3, 4, 5, 6]]


def randomized(model, seed=0):
    """Weights that are alike in every process, of a size at which the tokens differ from step to
    step."""
    generator = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(generator.normal(size=weight.shape))
    return model


def greedy_by_calls(call, prompt, num_tokens):
    """The tokens that continue a prompt, without the padding id 0, and their log probability.

    `call` takes token ids (1, length) and returns logits (1, length, vocab_size).
    """
    tokens, score = list(prompt), 0.0
    for _ in range(num_tokens):
        outputs = call(np.array([tokens], "int32"))
        logits = ops.convert_to_numpy(outputs)[0, -1].astype("float64")
        tokens.append(1 + int(logits[1:].argmax()))
        score += logits[tokens[-1]] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    return tokens[len(prompt) :], score


def assert_greedy(generated, *calls, prompts=PROMPTS):
    """Compares generated tokens and scores with those by calls: one for all prompts, or one for
    each."""
    num_tokens = generated.token_ids.shape[1]
    calls = calls * len(prompts) if len(calls) == 1 else calls
    expected = [
        greedy_by_calls(call, prompt, num_tokens)
        for call, prompt in zip(calls, prompts, strict=True)
    ]
    assert generated.token_ids.tolist() == [tokens for tokens, _ in expected]
    scores = [score for _, score in expected]
    np.testing.assert_allclose(generated.scores, scores, rtol=1e-4, atol=1e-4)
