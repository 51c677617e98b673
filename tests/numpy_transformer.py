"""The paper's formulas in plain NumPy and float64: what the layers must equal."""

import math

import keras
import numpy as np
from keras import ops


def randomize(layer, seed=0):
    """Random numbers in every weight, so that biases and normalizations matter too."""
    generator = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        values = generator.normal(scale=0.4, size=variable.shape)
        variable.assign(values + (1.0 if variable.name == "gamma" else 0.0))
    return layer


def array(tensor):
    """A tensor or variable as float64."""
    return np.asarray(ops.convert_to_numpy(ops.convert_to_tensor(tensor)), "float64")


def dense(layer, x):
    projected = x @ array(layer.kernel)
    return projected + array(layer.bias) if layer.use_bias else projected


def multi_head_attention(layer, query, value, key=None, mask=None):
    """The output and the weights. Rows attend to what `mask` lets through, or get zeros.

    `mask` broadcasts to (batch, target length, source length), or, with an axis for the heads, to (batch, num_heads,
    target length, source length).
    """
    key = value if key is None else key
    key_dim, value_dim = layer.key_dim, layer.value_dim or layer.key_dim
    batch, target_length, source_length = len(query), query.shape[1], value.shape[1]
    mask = np.asarray(True if mask is None else mask)
    mask = mask[:, None] if mask.ndim == 3 else mask
    mask = np.broadcast_to(mask, (batch, layer.num_heads, target_length, source_length))
    queries, keys = dense(layer.query_dense, query), dense(layer.key_dense, key)
    values = dense(layer.value_dense, value)
    weights = np.zeros((batch, layer.num_heads, target_length, source_length))
    heads = np.zeros((batch, target_length, layer.num_heads * value_dim))
    for b in range(batch):
        for head in range(layer.num_heads):
            of_key = slice(head * key_dim, (head + 1) * key_dim)
            of_value = slice(head * value_dim, (head + 1) * value_dim)
            for row in range(target_length):
                attended = np.flatnonzero(mask[b, head, row])
                if len(attended) == 0:
                    continue
                scores = keys[b, attended, of_key] @ queries[b, row, of_key] / math.sqrt(key_dim)
                exponentials = np.exp(scores - scores.max())
                weights[b, head, row, attended] = exponentials / exponentials.sum()
                heads[b, row, of_value] = weights[b, head, row] @ values[b, :, of_value]
    return dense(layer.output_dense, heads), weights


def neighborhood_mask(length, neighborhood):
    """The positions that each position attends to in restricted self-attention (section 4); all if None."""
    positions = np.arange(length)
    reach = length if neighborhood is None else (neighborhood - 1) // 2
    return np.abs(positions[:, None] - positions[None, :]) <= reach


def layer_norm(layer, x):
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    normalized = centered / np.sqrt(variance + layer.epsilon)
    return normalized * array(layer.gamma) + array(layer.beta)


def residual(layer, x, sublayer):
    if layer.norm_first:
        return x + sublayer(layer_norm(layer.norm, x))
    return layer_norm(layer.norm, x + sublayer(x))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu": lambda x: x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))) / 2.0,
}


def feed_forward(layer, x):
    activation = ACTIVATIONS[keras.activations.serialize(layer.activation)]
    return dense(layer.output_dense, activation(dense(layer.hidden_dense, x)))


def encoder_layer(layer, x, mask=None):
    """`mask` is (batch, length), True = a real token."""
    near = neighborhood_mask(x.shape[1], layer.neighborhood)
    mask = near if mask is None else near & mask[:, None, :]
    x = residual(
        layer.attention_residual,
        x,
        lambda hidden: multi_head_attention(layer.attention, hidden, hidden, mask=mask)[0],
    )
    return residual(layer.feed_forward_residual, x, lambda h: feed_forward(layer.feed_forward, h))


def decoder_layer(layer, x, source=None, target_mask=None, source_mask=None):
    """Masks are (batch, length), True = a real token."""
    mask = np.tril(neighborhood_mask(x.shape[1], layer.neighborhood))
    if target_mask is not None:
        mask = mask & target_mask[:, None, :]
    x = residual(
        layer.attention_residual,
        x,
        lambda hidden: multi_head_attention(layer.attention, hidden, hidden, mask=mask)[0],
    )
    if source is not None:
        mask = None if source_mask is None else source_mask[:, None, :]
        x = residual(
            layer.source_attention_residual,
            x,
            lambda h: multi_head_attention(layer.source_attention, h, source, mask=mask)[0],
        )
    return residual(layer.feed_forward_residual, x, lambda h: feed_forward(layer.feed_forward, h))


def encoder(layer, x, mask=None):
    for one in layer.layers:
        x = encoder_layer(one, x, mask)
    return layer_norm(layer.final_norm, x) if layer.norm_first else x


def decoder(layer, x, source=None, target_mask=None, source_mask=None):
    for one in layer.layers:
        x = decoder_layer(one, x, source, target_mask, source_mask)
    return layer_norm(layer.final_norm, x) if layer.norm_first else x


def sinusoids(length, d_model, last=None):
    """Section 3.5, one number at a time. `last` takes the place of d_model in the exponent."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / (last or d_model))
            table[position, 2 * i] = math.sin(angle)
            table[position, 2 * i + 1] = math.cos(angle)
    return table


def positional_embedding(layer, token_ids):
    length = token_ids.shape[1]
    if layer.positions == "learned":
        positions = array(layer.position_table)[:length]
    else:
        last = layer.d_model - 2 if layer.positions == "tensor2tensor" else None
        positions = sinusoids(length, layer.d_model, last)
    return array(layer.token_table)[token_ids] * math.sqrt(layer.d_model) + positions


def transformer(model, source, target):
    """Logits of token ids, by Figure 1."""
    source_mask, target_mask = source != 0, target != 0
    encoded = encoder(model.encoder, positional_embedding(model.source_embedding, source), source_mask)
    decoded = decoder(
        model.decoder,
        positional_embedding(model.target_embedding, target),
        encoded,
        target_mask,
        source_mask,
    )
    if model.config.tie_embeddings == "none":
        return dense(model.output_projection, decoded)
    logits = decoded @ array(model.target_embedding.token_table).T
    return logits + array(model.output_projection.bias) if model.config.logits_bias else logits
