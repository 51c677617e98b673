"""The paper's formulas in plain NumPy and float64: what the layers must equal."""

import math

import keras
import numpy as np
from keras import ops

from keras_transformer import RotaryPositions


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(layer, *shapes):
    layer.build(*shapes)
    return randomize(layer)


def randomize(layer, seed=0):
    """Random numbers in every weight, so that biases and normalizations matter too."""
    generator = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        values = generator.normal(scale=0.4, size=variable.shape)
        variable.assign(values + (1.0 if variable.name in ("gamma", "scale") else 0.0))
    return layer


def array(tensor):
    """A tensor or variable as float64."""
    return np.asarray(ops.convert_to_numpy(ops.convert_to_tensor(tensor)), "float64")


def dense(layer, x):
    projected = x @ array(layer.kernel)
    return projected + array(layer.bias) if layer.use_bias else projected


def multi_head_attention(
    layer,
    query,
    value,
    key=None,
    mask=None,
    causal=False,
    positions=None,
    key_positions=None,
    bias=0.0,
):
    """The output and the weights. Rows attend to what `mask` lets through, or get zeros.

    `mask` broadcasts to (batch, target length, source length), or, with an axis for the heads, to
    (batch, num_heads, target length, source length). `causal` leaves only what is not later, and is
    what T5's buckets depend on. With positions, each (batch, length), `mask` alone says what is
    attended to. `bias` is added to the scores, and broadcasts as `mask` does.
    """
    key = value if key is None else key
    key_dim = layer.key_dim
    batch, target_length, source_length = len(query), query.shape[1], value.shape[1]
    mask = np.asarray(True if mask is None else mask)
    mask = mask[:, None] if mask.ndim == 3 else mask
    mask = (
        mask & np.tril(np.ones((target_length, source_length), bool))
        if causal and positions is None
        else mask
    )
    positions = np.arange(target_length)[None, :] if positions is None else positions
    key_positions = np.arange(source_length)[None, :] if key_positions is None else key_positions
    mask = np.broadcast_to(mask, (batch, layer.num_heads, target_length, source_length))
    key_value_heads = layer.num_key_value_heads or layer.num_heads
    queries = compared(layer, "query", dense(layer.query_dense, query), layer.num_heads, positions)
    keys = compared(layer, "key", dense(layer.key_dense, key), key_value_heads, key_positions)
    values = split_heads(dense(layer.value_dense, value), key_value_heads)
    bias = np.asarray(bias, "float64")
    bias = bias[:, None] if bias.ndim == 3 else bias
    bias = bias + score_bias(layer, key_positions[:, None, :] - positions[:, :, None], causal)
    bias = np.broadcast_to(bias, mask.shape)
    weights = np.zeros((batch, layer.num_heads, target_length, source_length))
    heads = np.zeros((batch, layer.num_heads, target_length, layer.value_dim or key_dim))
    for b in range(batch):
        for head in range(layer.num_heads):
            # As many heads of queries share one of keys and values.
            shared = head // (layer.num_heads // key_value_heads)
            for row in range(target_length):
                attended = np.flatnonzero(mask[b, head, row])
                if len(attended) == 0:
                    continue
                scores = keys[b, shared, attended] @ queries[b, head, row] / math.sqrt(key_dim)
                scores = scores + bias[b, head, row, attended]
                exponentials = np.exp(scores - scores.max())
                weights[b, head, row, attended] = exponentials / exponentials.sum()
                heads[b, head, row] = weights[b, head, row] @ values[b, shared]
    concatenated = heads.transpose(0, 2, 1, 3).reshape(batch, target_length, -1)
    if layer.use_gate:
        concatenated = concatenated / (1.0 + np.exp(-dense(layer.gate_dense, query)))
    return dense(layer.output_dense, concatenated), weights


def split_heads(rows, num_heads):
    """(batch, length, num_heads * width) -> (batch, num_heads, length, width)"""
    batch, length, _ = rows.shape
    return rows.reshape(batch, length, num_heads, -1).transpose(0, 2, 1, 3)


def compared(layer, name, rows, num_heads, positions):
    """Queries or keys of each head as they are compared: normalized and rotated, if the layer does
    so."""
    heads = split_heads(rows, num_heads)
    if layer.query_key_norm:
        heads = rms_norm(getattr(layer, f"{name}_norm"), heads)
    scheme = layer.relative_positions
    if isinstance(scheme, RotaryPositions):
        frequencies, magnitude = rotary_frequencies(heads.shape[-1], scheme)
        return magnitude * rotated(heads, positions[:, None, :], frequencies)
    return rotated(heads, positions[:, None, :]) if scheme == "rotary" else heads


def rotated(vectors, positions, frequencies=None):
    """Su et al. 2021, equation 34, with the halves of a vector in the places of its even and odd
    elements."""
    width = vectors.shape[-1]
    half = width // 2
    if frequencies is None:
        frequencies = [10000 ** (-2 * i / width) for i in range(half)]
    turned = np.zeros_like(vectors, "float64")
    for i in range(half):
        angles = positions * frequencies[i]
        first, second = vectors[..., i], vectors[..., i + half]
        turned[..., i] = first * np.cos(angles) - second * np.sin(angles)
        turned[..., i + half] = first * np.sin(angles) + second * np.cos(angles)
    return turned


def rotary_frequencies(width, scheme):
    """The angle per position of each pair of features, and the factor on queries and keys."""
    frequencies, factor = [], scheme.factor
    for i in range(width // 2):
        frequency = scheme.base ** (-2 * i / width)
        if scheme.scaling == "linear":
            # Chen et al. 2023, equation 4: position m is taken for m / factor.
            frequency = frequency / factor
        elif scheme.scaling == "ntk":
            # Peng et al. 2023, definition 1.
            frequency = (scheme.base * factor ** (width / (width - 2))) ** (-2 * i / width)
        elif scheme.scaling == "yarn":
            # Their section 3.2, with the ramp of their program: by the number of the pair.
            first = math.floor(pair_that_turns(scheme.beta_fast, width, scheme))
            last = math.ceil(pair_that_turns(scheme.beta_slow, width, scheme))
            first, last = max(first, 0), min(last, width - 1)
            if i >= last:
                share = 1.0
            elif i <= first:
                share = 0.0
            else:
                share = (i - first) / (last - first)
            frequency = (1 - share) * frequency + share * frequency / factor
        frequencies.append(frequency)
    # Their equation 22, the square root of 1 / t.
    return frequencies, 0.1 * math.log(factor) + 1 if scheme.scaling == "yarn" else 1.0


def pair_that_turns(times, width, scheme):
    """The number i, not whole, of which base^(2i / width) * 2 pi fits so often into the length."""
    wavelength = scheme.original_max_length / times
    return width / 2 * math.log(wavelength / (2 * math.pi)) / math.log(scheme.base)


def score_bias(layer, distances, causal):
    """What is added to the scores: (batch, num_heads, target length, source length)"""
    if layer.relative_positions == "alibi":
        return -np.array(alibi_slopes(layer.num_heads))[:, None, None] * np.abs(distances)[:, None]
    if layer.relative_positions == "t5":
        buckets = np.vectorize(t5_bucket)(distances, causal)
        return np.moveaxis(array(layer.position_scheme.embeddings)[buckets], -1, 1)
    return np.zeros((1, 1, 1, 1))


def alibi_slopes(num_heads):
    """Press et al. 2022, section 3; between powers of two, every second slope of the next one, as
    in its appendix."""
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return (
        slopes
        + [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * power, 2)][: num_heads - power]
    )


def t5_bucket(distance, causal, buckets=32, max_distance=128):
    """Raffel et al. 2020, section 2.1: near distances apart, far ones by logarithm; `distance` is
    key minus query."""
    first = 0
    if not causal:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = -abs(distance)
    distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    # What is a whole number but for rounding is that number.
    share = math.log(distance / exact) / math.log(max_distance / exact) + 1e-9
    logarithmic = exact + int(share * (buckets - exact))
    return first + min(logarithmic, buckets - 1)


def window_mask(length, sliding_window):
    """The positions that each position attends to in restricted self-attention (section 4); all if
    None."""
    positions = np.arange(length)
    window = length if sliding_window is None else sliding_window
    return np.abs(positions[:, None] - positions[None, :]) < window


def layer_norm(layer, x):
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    normalized = centered / np.sqrt(variance + layer.epsilon)
    return normalized * array(layer.gamma) + array(layer.beta)


def rms_norm(layer, x):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + layer.epsilon) * array(layer.scale)


def normalization(layer, x):
    return rms_norm(layer, x) if hasattr(layer, "scale") else layer_norm(layer, x)


def residual(layer, x, sublayer):
    if layer.norm_first:
        return x + sublayer(normalization(layer.norm, x))
    return normalization(layer.norm, x + sublayer(x))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu": lambda x: x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))) / 2.0,
}


def feed_forward(layer, x):
    activation = ACTIVATIONS[keras.activations.serialize(layer.activation)]
    if layer.gated:
        return dense(
            layer.output_dense,
            activation(dense(layer.gate_dense, x)) * dense(layer.hidden_dense, x),
        )
    return dense(layer.output_dense, activation(dense(layer.hidden_dense, x)))


def encoder_layer(layer, x, mask=None, causal=False, bias=0.0):
    return decoder_layer(layer, x, target_mask=mask, causal=causal, bias=bias)


def decoder_layer(
    layer, x, source=None, target_mask=None, source_mask=None, causal=True, bias=0.0, cross_bias=0.0
):
    """Masks are (batch, length), True = a real token. Biases are those of attention's scores."""
    mask = window_mask(x.shape[1], layer.sliding_window)
    if target_mask is not None:
        mask = mask & target_mask[:, None, :]

    def attend(hidden):
        outputs, _ = multi_head_attention(
            layer.self_attention, hidden, hidden, mask=mask, causal=causal, bias=bias
        )
        return outputs

    def attend_to_source(hidden):
        allowed = None if source_mask is None else source_mask[:, None, :]
        outputs, _ = multi_head_attention(
            layer.cross_attention, hidden, source, mask=allowed, bias=cross_bias
        )
        return outputs

    x = residual(layer.self_attention_residual, x, attend)
    if source is not None:
        x = residual(layer.cross_attention_residual, x, attend_to_source)
    return residual(layer.feed_forward_residual, x, lambda h: feed_forward(layer.feed_forward, h))


def encoder(layer, x, mask=None, bias=0.0):
    for block in layer.layers:
        x = encoder_layer(block, x, mask, bias=bias)
    return normalization(layer.final_norm, x) if layer.norm_first else x


def decoder(layer, x, source=None, target_mask=None, source_mask=None, bias=0.0, cross_bias=0.0):
    masks = dict(target_mask=target_mask, source_mask=source_mask)
    for block in layer.layers:
        x = decoder_layer(block, x, source, **masks, bias=bias, cross_bias=cross_bias)
    return normalization(layer.final_norm, x) if layer.norm_first else x


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
    if layer.positions is None:
        positions = 0.0
    elif layer.positions == "learned":
        positions = array(layer.position_table)[:length]
    else:
        last = layer.d_model - 2 if layer.positions == "tensor2tensor" else None
        positions = sinusoids(length, layer.d_model, last)
    return array(layer.token_table)[token_ids] * math.sqrt(layer.d_model) + positions


def transformer(model, source, target):
    """Logits of token ids, by Figure 1."""
    source_mask, target_mask = source != 0, target != 0
    encoded = encoder(
        model.encoder, positional_embedding(model.source_embedding, source), source_mask
    )
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
