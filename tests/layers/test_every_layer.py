"""What Keras and users expect of every public layer, loss, metric and schedule."""

import ast
import inspect
import json
import math
import pydoc
import re
import types
import typing

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer import MaskedLabelSmoothedCrossentropy, PositionalEmbedding
from keras_transformer.layers.children import child_seed

D_MODEL = 8
TOKEN_IDS = np.array([[3, 1, 4, 0, 0], [5, 2, 6, 0, 0], [7, 8, 5, 3, 1], [2, 6, 4, 8, 7]])

# Every layer with a value other than the default for every argument, in their order, and how many
# inputs it takes.
SIZES = dict(
    num_heads=2,
    d_ff=12,
    key_dim=3,
    value_dim=5,
    dropout=0.2,
    attention_dropout=0.1,
    activation_dropout=0.3,
    activation="gelu",
    norm_first=True,
    sliding_window=2,
    epsilon=1e-5,
    attention_bias=True,
    feed_forward_bias=False,
    kernel_initializer="he_normal",
    bias_initializer="ones",
    kernel_regularizer="l2",
    bias_regularizer="l1",
    seed=7,
    normalization="rms",
    gated=True,
    num_key_value_heads=1,
    query_key_norm=True,
    relative_positions="alibi",
    flash_attention=False,
)
# What a stack uses itself, and what it hands on to its layers.
STACK = {
    "num_layers": 1,
    **{name: SIZES[name] for name in ("num_heads", "d_ff", "norm_first", "normalization")},
    **{name: SIZES[name] for name in ("epsilon", "seed")},
    "remat": True,
}
OF_STACKED_LAYERS = {name: value for name, value in SIZES.items() if name not in STACK}
LAYERS = {
    "MultiHeadAttention": (
        dict(
            num_heads=2,
            key_dim=3,
            value_dim=5,
            dropout=0.1,
            use_bias=False,
            output_shape=D_MODEL,
            attention_axes=1,
            sliding_window=2,
            flash_attention=False,
            kernel_initializer="he_normal",
            bias_initializer="ones",
            kernel_regularizer="l2",
            bias_regularizer="l1",
            # In mixed precision, Keras cannot add its loss to the others.
            activity_regularizer=None,
            kernel_constraint="max_norm",
            bias_constraint="non_neg",
            use_gate=True,
            seed=7,
            num_key_value_heads=1,
            query_key_norm=True,
            relative_positions="t5",
        ),
        2,
    ),
    "PositionalEmbedding": (
        dict(
            vocab_size=9,
            d_model=D_MODEL,
            positions="learned",
            max_length=6,
            dropout=0.2,
            scale_embedding=False,
            padding_id=1,
            embeddings_initializer="he_normal",
            embeddings_regularizer="l2",
            embeddings_constraint="max_norm",
        ),
        0,
    ),
    "PositionalEncoding": (
        dict(
            positions="learned",
            max_length=6,
            dropout=0.2,
            scale_embedding=True,
            embeddings_initializer="he_normal",
            embeddings_regularizer="l2",
            embeddings_constraint="max_norm",
        ),
        1,
    ),
    "TiedProjection": (dict(embedding=PositionalEmbedding, use_bias=True), 1),
    "FeedForward": (
        dict(
            d_ff=12,
            activation="gelu",
            dropout=0.2,
            use_bias=False,
            gated=True,
            kernel_initializer="he_normal",
            bias_initializer="ones",
            kernel_regularizer="l2",
            bias_regularizer="l1",
            seed=7,
        ),
        1,
    ),
    "Residual": (
        dict(norm=keras.layers.LayerNormalization, dropout=0.2, norm_first=True, seed=7),
        2,
    ),
    "EncoderLayer": (SIZES, 1),
    "DecoderLayer": (SIZES, 2),
    "Encoder": (STACK, 1),
    "Decoder": (STACK, 2),
}
STACKS = {"Encoder": "EncoderLayer", "Decoder": "DecoderLayer"}
# Attention calls these: they are no layers of a model by themselves.
POSITION_SCHEMES = {
    "PositionScheme": {},
    "RotaryPositions": dict(
        base=500.0,
        scaling="yarn",
        factor=4.0,
        original_max_length=64,
        beta_fast=16.0,
        beta_slow=2.0,
    ),
    "AlibiPositions": {},
    "T5Positions": {},
}
# Losses, metrics and schedules: a value other than the default for every argument.
OTHERS = {
    "MaskedLabelSmoothedCrossentropy": dict(
        label_smoothing=0.2,
        reduction="sum",
        name="loss",
        padding_id=5,
        ignore_class=-100,
        from_logits=False,
    ),
    "MaskedAccuracy": dict(
        name="accuracy", dtype="float64", padding_id=5, ignore_class=-100, from_logits=False
    ),
    "Perplexity": dict(
        name="perplexity_of_all",
        dtype="float64",
        padding_id=5,
        ignore_class=-100,
        from_logits=False,
    ),
    "WarmupInverseSqrt": dict(d_model=8, warmup_steps=100, scale=2.0),
}

# The arguments that may be None; key_dim may in the layers that can derive it from d_model.
MAY_BE_NULL = {
    *("value_dim", "max_length", "padding_id", "seed", "num_key_value_heads", "flash_attention"),
    "sliding_window",
}
TYPES = {
    **dict.fromkeys(["num_layers", "num_heads", "d_ff", "vocab_size", "d_model"], int),
    **dict.fromkeys(["key_dim", "value_dim", "max_length", "padding_id"], int),
    **dict.fromkeys(["dropout", "attention_dropout", "activation_dropout", "epsilon"], float),
    **dict.fromkeys(["seed", "num_key_value_heads", "sliding_window"], int),
    **dict.fromkeys(["base", "factor", "beta_fast", "beta_slow"], float),
    "original_max_length": int,
    **dict.fromkeys(["use_bias", "norm_first", "attention_bias", "scale_embedding", "remat"], bool),
    **dict.fromkeys(
        ["feed_forward_bias", "gated", "query_key_norm", "flash_attention", "use_gate"], bool
    ),
}
NOT_SIZES = [(0, "positive"), ("8", "of type int"), (2.0, "of type int"), (True, "of type int")]
NEITHER_SIZES_NOR_NULL = [*NOT_SIZES, (None, "of type int")]
NOT_RATES = [
    (1, "at least 0 and below 1"),
    (math.nan, "at least 0 and below 1"),
    ("0.1", "of type float"),
]
NOT_POSITIVE = [
    (0.0, "positive and finite"),
    (math.inf, "positive and finite"),
    (None, "of type float"),
]
NOT_BOOL = [(value, "of type bool") for value in (1, "yes", None)]
# What breaks the rule of an argument, and the rule.
BROKEN = {
    **dict.fromkeys(
        ["num_layers", "num_heads", "d_ff", "vocab_size", "d_model"], NEITHER_SIZES_NOR_NULL
    ),
    **dict.fromkeys(
        ["key_dim", "value_dim", "max_length", "sliding_window", "num_key_value_heads"], NOT_SIZES
    ),
    **dict.fromkeys(["dropout", "attention_dropout", "activation_dropout"], NOT_RATES),
    **dict.fromkeys(
        ["use_bias", "norm_first", "attention_bias", "scale_embedding", "remat"], NOT_BOOL
    ),
    **dict.fromkeys(["feed_forward_bias", "gated", "query_key_norm", "use_gate"], NOT_BOOL),
    **dict.fromkeys(["epsilon", "beta_slow"], NOT_POSITIVE),
    "base": [*NOT_POSITIVE, (1.0, "above 1")],
    "factor": [*NOT_POSITIVE, (0.5, "at least 1")],
    "beta_fast": [*NOT_POSITIVE, (2.0, "above beta_slow=2.0")],
    "original_max_length": NEITHER_SIZES_NOR_NULL,
    "scaling": [(value, "one of linear, ntk, yarn") for value in ("dynamic", 0)],
    "output_shape": [
        (value, "a positive int, a tuple of them, or None")
        for value in (0, -1, 8.0, "8", (2, 0), ())
    ],
    "attention_axes": [
        (value, "an int, a tuple of ints, or None") for value in (1.0, "1", (1, "2"), ())
    ],
    "flash_attention": [(value, "of type bool") for value in (1, 0, "yes")],
    "seed": [(value, "of type int") for value in ("7", 7.0, True)],
    "normalization": [(value, "one of layer, rms") for value in ("batch", None, 0)],
    "relative_positions": [(value, "one of rotary, alibi, t5") for value in ("sinusoidal", 0)],
    "padding_id": [(-1, "at least 0"), *[(value, "of type int") for value in ("0", 0.0, False)]],
    "positions": [(value, "one of sinusoidal, tensor2tensor, learned") for value in ("sin", 0)],
}

# The arguments of `keras.layers.Layer`, of which the first two are not in every configuration.
OF_EVERY_LAYER = {"activity_regularizer", "autocast", "name", "trainable", "dtype"}

# The arguments that name objects of Keras, and where these are found and written.
OF_KERAS = {
    "activation": keras.activations,
    **dict.fromkeys(
        ["kernel_initializer", "bias_initializer", "embeddings_initializer"], keras.initializers
    ),
    **dict.fromkeys(
        ["kernel_regularizer", "bias_regularizer", "embeddings_regularizer"], keras.regularizers
    ),
    "activity_regularizer": keras.regularizers,
    **dict.fromkeys(
        ["kernel_constraint", "bias_constraint", "embeddings_constraint"], keras.constraints
    ),
}


def attribute_of(layer, argument):
    # Keras uses these names itself, in `summary` and for the outputs of the whole layer.
    return getattr(
        layer, f"_{argument}" if argument in ("output_shape", "activity_regularizer") else argument
    )


def arguments_of(name, dtype=None):
    """The arguments in the signature; a stack's layers take more."""
    arguments = POSITION_SCHEMES[name] if name in POSITION_SCHEMES else LAYERS[name][0]
    if "embedding" in arguments:
        embedding = PositionalEmbedding(9, D_MODEL, dtype=dtype, name="embedding")
        embedding.build((None, None))
        return {**arguments, "embedding": embedding}
    if "norm" in arguments:
        return {**arguments, "norm": arguments["norm"](dtype=dtype, name="norm")}
    return arguments


def all_arguments_of(name, dtype=None):
    return {**arguments_of(name, dtype), **(OF_STACKED_LAYERS if name in STACKS else {})}


def make(name, dtype=None):
    return class_of(name)(**all_arguments_of(name, dtype), dtype=dtype)


def class_of(name):
    return getattr(keras_transformer, name)


def may_be_null(name, argument):
    return argument in MAY_BE_NULL or (argument == "key_dim" and name != "MultiHeadAttention")


def constructor_arguments(cls):
    """The parameters as `help` shows them, without those of every Keras layer or loss."""
    parameters = inspect.signature(cls).parameters
    return {
        argument: parameter
        for argument, parameter in parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def plain_types(cls):
    """The types of the constructor's arguments as the signature shows them, without their rules."""
    annotations = {name: p.annotation for name, p in inspect.signature(cls).parameters.items()}
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=annotations))


every_layer = pytest.mark.parametrize("name", [*LAYERS, *POSITION_SCHEMES])
each_stack = pytest.mark.parametrize(("stack", "layer"), STACKS.items())


def test_every_public_layer_loss_metric_and_schedule_is_here():
    classes = {name for name in keras_transformer.__all__ if name[0].isupper()}
    assert {*LAYERS, *POSITION_SCHEMES, *OTHERS} == classes - {
        "LanguageModel",
        "NewPositions",
        "Transformer",
        "TransformerConfig",
    }
    for name in (*LAYERS, *POSITION_SCHEMES):
        assert issubclass(class_of(name), keras.layers.Layer)


@every_layer
def test_arguments_are_attributes_and_config_keys(name):
    own_arguments, arguments = arguments_of(name), all_arguments_of(name)
    layer = class_of(name)(**arguments)
    config = layer.get_config()
    assert list(constructor_arguments(type(layer))) == list(own_arguments)
    further = "layer_arguments" if name in STACKS else "kwargs"
    assert list(inspect.signature(type(layer)).parameters)[-1] == further
    assert set(config) - (OF_EVERY_LAYER - set(arguments)) == set(arguments)
    for argument, value in arguments.items():
        # A stack hands the others on.
        attribute = attribute_of(layer, argument) if argument in own_arguments else None
        if argument in OF_KERAS:
            module = OF_KERAS[argument]
            expected = module.serialize(module.get(value))
            assert module.serialize(module.get(config[argument])) == expected
            if argument in own_arguments:
                assert config[argument] == module.serialize(attribute)
        elif argument not in own_arguments:
            assert config[argument] == value
        elif argument in ("embedding", "norm"):
            assert attribute is value
            assert config[argument] == keras.saving.serialize_keras_object(value)
        else:
            assert attribute == value
            assert config[argument] == value
    plain = json.loads(json.dumps(config))
    copy = type(layer).from_config(plain)
    assert json.loads(json.dumps(copy.get_config())) == plain


@every_layer
def test_help_begins_with_the_signature(name):
    cls = class_of(name)
    lines = pydoc.plain(pydoc.render_doc(cls)).splitlines()
    assert f" |  {name}{inspect.signature(cls)}" in lines


@pytest.mark.parametrize("name", [*LAYERS, "RotaryPositions"])
def test_the_signature_shows_types_and_the_defaults_that_apply(name):
    parameters, types = constructor_arguments(class_of(name)), plain_types(class_of(name))
    assert list(types) == [*parameters, "layer_arguments" if name in STACKS else "kwargs"]
    # Keras reads them by `getfullargspec`, which does not look behind decorators.
    specification = inspect.getfullargspec(class_of(name).__init__)
    assert [*specification.args, *specification.kwonlyargs] == ["self", *parameters]
    required = {
        argument: arguments_of(name)[argument]
        for argument, p in parameters.items()
        if p.default is p.empty
    }
    layer = class_of(name)(**required)
    for argument, parameter in parameters.items():
        if argument in TYPES:
            expected = TYPES[argument] | None if may_be_null(name, argument) else TYPES[argument]
            assert types[argument] == expected, argument
        if argument in OF_KERAS:
            module = OF_KERAS[argument]
            assert layer.get_config()[argument] == module.serialize(
                module.get(parameter.default)
            ), argument
        elif argument not in required:
            assert (
                attribute_of(layer, argument) == layer.get_config()[argument] == parameter.default
            ), argument


@each_stack
def test_what_a_stack_uses_itself_has_the_types_and_defaults_of_its_layers(stack, layer):
    parameters = constructor_arguments(class_of(stack))
    assert next(iter(parameters)) == "num_layers"
    assert parameters.pop("num_layers").default is inspect.Parameter.empty
    assert parameters.pop("remat").default is False
    of_layer = constructor_arguments(class_of(layer))
    assert parameters == {name: of_layer[name] for name in parameters}


@each_stack
def test_a_stack_with_no_arguments_for_its_layers_leaves_them_their_defaults(stack, layer):
    made = class_of(stack)(2, 3, 6)
    made.build((None, None, 6))
    for part in made.layers:
        assert part.get_config() == class_of(layer)(3, 6, name=part.name).get_config()
    assert not {"dropout", "gated"} & set(made.get_config())


@pytest.mark.parametrize("name", ["Encoder", "Decoder", "EncoderLayer", "DecoderLayer"])
def test_an_option_that_does_not_exist_is_refused_by_the_layer(name):
    with pytest.raises(ValueError, match=f"passed to {STACKS.get(name, name)}: .*dropuot"):
        # A stack makes its layers when it is built.
        class_of(name)(**{**arguments_of(name), "dropuot": 0.1}).build((None, None, D_MODEL))


@each_stack
def test_a_stack_gives_its_arguments_to_every_layer(stack, layer):
    made = class_of(stack)(3, **SIZES, dtype="mixed_bfloat16")
    made.build((None, None, D_MODEL))
    assert [type(part) for part in made.layers] == [class_of(layer)] * 3
    for number, part in enumerate(made.layers):
        expected = class_of(layer)(**SIZES, dtype="mixed_bfloat16", name=f"layer_{number}")
        # Each layer has a seed of its own.
        assert part.get_config() == {
            **expected.get_config(),
            "seed": child_seed(7, f"layer_{number}"),
        }


def entries(docstring, section):
    """Returns what a section of a docstring says about each name."""
    docstring = inspect.cleandoc(docstring)
    _, _, rest = docstring.partition(f"\n{section}:\n")
    lines = rest.partition("\n\n")[0].splitlines()
    texts = {}
    for line in lines:
        if match := re.match(r"    (\w+): (.*)", line):
            name, texts[match[1]] = match[1], match[2]
        elif line.startswith("    **"):
            break
        else:
            texts[name] += " " + line.strip()
    return texts


@pytest.mark.parametrize("name", [*LAYERS, *POSITION_SCHEMES, *OTHERS])
def test_the_docstring_describes_every_argument_and_its_default(name):
    cls = class_of(name)
    texts, parameters = entries(cls.__doc__, "Args"), constructor_arguments(cls)
    assert list(texts) == list(parameters)
    if name in STACKS:
        further = f"    **layer_arguments: further arguments of `{STACKS[name]}`"
        assert further in inspect.cleandoc(cls.__doc__)
    for argument, parameter in parameters.items():
        default = re.search(r"Defaults to (\S+)", texts[argument])
        assert (default is None) == (parameter.default is parameter.empty), argument
        # A default that is another argument's value stands in backquotes; in the signature it is
        # None.
        if default is not None:
            text = default[1].rstrip(".,:")
            assert (
                None if text.startswith("`") else ast.literal_eval(text)
            ) == parameter.default, argument
        if argument in TYPES:
            or_none = " or None" if may_be_null(name, argument) else ""
            assert texts[argument].startswith(f"{TYPES[argument].__name__}{or_none}. "), argument


@pytest.mark.parametrize("name", LAYERS)
def test_the_docstring_describes_every_call_argument(name):
    call_arguments = list(inspect.signature(class_of(name).call).parameters)[1:]
    assert sorted(entries(class_of(name).__doc__, "Call arguments")) == sorted(call_arguments)


@pytest.mark.parametrize("name", OTHERS)
def test_arguments_of_losses_metrics_and_schedules_are_config_keys(name):
    arguments = OTHERS[name]
    assert list(constructor_arguments(class_of(name))) == list(arguments)
    made = class_of(name)(**arguments)
    assert made.get_config() == arguments
    assert (
        class_of(name).from_config(json.loads(json.dumps(made.get_config()))).get_config()
        == arguments
    )


def broken_arguments():
    """One value that breaks the rule of each argument; `test_checks.py` tries the rules themselves.

    `DecoderLayer` and `Decoder` share the constructors of `EncoderLayer` and `Encoder`.
    """
    for name in (*LAYERS, *POSITION_SCHEMES):
        if name in ("DecoderLayer", "Decoder"):
            continue
        for argument in arguments_of(name):
            for value, rule in BROKEN.get(argument, ())[:1]:
                if rule.startswith("of type") and may_be_null(name, argument):
                    rule += " or null"
                if (name, argument) == ("PositionalEncoding", "positions"):
                    rule += ", rotary"
                yield pytest.param(name, argument, value, rule, id=f"{name}-{argument}-{value!r}")


@each_stack
def test_a_stack_with_a_wrong_argument_of_its_layers_is_refused_when_it_is_built(stack, layer):
    wrong = class_of(stack)(2, 4, 8, dropout=1.5)
    with pytest.raises(ValueError, match=r"dropout must be .*; received dropout=1\.5"):
        wrong.build((None, None, D_MODEL))


def test_every_argument_that_has_a_rule_is_tried():
    tried = set(BROKEN)
    names = (*LAYERS, *POSITION_SCHEMES)
    all_arguments = {argument for name in names for argument in all_arguments_of(name)}
    assert all_arguments - tried == {*OF_KERAS, "embedding", "norm"}
    assert tried <= all_arguments


@pytest.mark.parametrize(("name", "argument", "value", "rule"), list(broken_arguments()))
def test_a_value_that_breaks_its_rule_is_refused_in_one_line(name, argument, value, rule):
    layer_class = class_of(name)
    arguments = {**all_arguments_of(name), argument: value}
    message = f"{argument} must be {rule}; received {argument}={value!r}"
    with pytest.raises(ValueError) as error:
        layer_class(**arguments)
    assert str(error.value) == message
    # Keras adds the configuration to the message.
    with pytest.raises(TypeError) as error:
        layer_class.from_config({**make(name).get_config(), argument: value})
    assert str(error.value).endswith(f" {message}")


def classifier(name, dtype=None):
    """A user's model: the layer between stock layers."""
    _, num_inputs = LAYERS[name]
    token_ids = keras.Input((None,), dtype="int32")
    layer = make(name, dtype)
    if num_inputs == 0:
        hidden = layer(token_ids)
    elif name == "TiedProjection":
        hidden = layer(layer.embedding(token_ids))
    else:
        embedding = keras.layers.Embedding(9, D_MODEL, mask_zero=True, dtype=dtype)
        if name == "Residual":
            # With it, `sublayer_input` alone normalizes.
            layer.norm_first = False
        hidden = layer(*[embedding(token_ids)] * num_inputs)
    return keras.Model(token_ids, keras.layers.Dense(9, dtype=dtype)(hidden)), layer


# The others are compiled by slow tests; XLA takes longest for blocks, PyTorch's compiler for
# everything.
QUICK = {"float32": ["FeedForward"], "mixed_bfloat16": ["MultiHeadAttention", "EncoderLayer"]}


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        pytest.param(dtype, name, marks=[pytest.mark.slow] if name not in QUICK[dtype] else [])
        for dtype in ("float32", "mixed_bfloat16")
        for name in LAYERS
    ],
)
def test_a_model_with_the_layer_trains_is_saved_and_loads(name, dtype, tmp_path):
    keras.utils.set_random_seed(0)
    model, layer = classifier(name, dtype)
    assert {weight.dtype for weight in layer.trainable_variables} == {"float32"}
    for sublayer in layer._flatten_layers():
        assert sublayer.dtype_policy.name == dtype

    # One step changes every weight: compiled by XLA in float32, and not compiled at all.
    before = layer.get_weights()
    compiled = {"jit_compile": True} if dtype == "float32" else {"run_eagerly": True}
    model.compile("adam", MaskedLabelSmoothedCrossentropy(), **compiled)
    model.fit(TOKEN_IDS, TOKEN_IDS, verbose=0)
    for weight, old in zip(layer.weights, before, strict=True):
        new = keras.ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(new)), weight.path
        assert np.any(new != old), weight.path

    # The file needs no custom objects, and brings its policy along, whatever the global one is.
    expected = keras.ops.convert_to_numpy(model(TOKEN_IDS))
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "float32" else "float32")
    try:
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    finally:
        keras.config.set_dtype_policy("float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(loaded(TOKEN_IDS)), expected)
