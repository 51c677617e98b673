"""A recipe: all that `keras-transformer train` is told beside the text, from YAML and --set."""

import dataclasses
import pathlib

import yaml

from keras_transformer.config import (
    PRECISIONS,
    ConfigError,
    DecodingConfig,
    TokenizerConfig,
    TransformerConfig,
    check_keys,
    check_types,
    from_dict,
    require,
    require_one_of,
)
from keras_transformer.model_dir import naming, read_yaml

RECIPES = pathlib.Path(__file__).resolve().parent / "recipes"


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained (section 5 of the paper).

    Args:
        steps: updates in all.
        tokens_per_batch: most source, and most target, positions in a batch, all devices together.
        num_buckets: how many shapes batches come in.
        warmup_steps: updates until the highest learning rate.
        peak_learning_rate: the highest, after the warmup; null for the paper's, `(d_model * warmup_steps) ** -0.5`.
        decay: how the learning rate falls from there: "inverse_sqrt", the paper's, or "cosine", to 0 at the last step.
        label_smoothing: ε.
        subword_dropout: rate at which merges of subwords are left out of the training text (BPE-dropout, Provilkov et
            al. 2020), so that each sentence is seen in many segmentations; for tokenizers of kind "bpe".
        subword_samples: how many segmentations of each sentence, where subword_dropout is not 0.
        consistency: R-Drop's α (Liang et al. 2021): every batch goes through the model twice with other dropout, and
            the two predictions are drawn together; 0 is the paper's single pass.
        clip_norm: largest norm of the gradient; null clips nothing, as in the paper.
        accumulate_steps: in how many parts, one after another, each device computes its share of a batch, so that a
            batch may be larger than its memory; the result is the same.
        precision: "float32", or "bfloat16" (weights stay float32).
        validate_every: updates between two validations, each of which saves a checkpoint.
        validate_by: what tells the better checkpoint: "perplexity", or "bleu", for which the validation text is
            translated, greedily.
        patience: validations without a better one after which training ends early; null for none.
        keep_checkpoints: how many of the last checkpoints stay on disk.
        average_last: how many of the last checkpoints are averaged when training ends; 0 averages none.
        average_best: instead of the last, how many of those with the best validation, which then stay on disk too.
        seed: of the first weights, the order of the text and dropout.
    """

    steps: int = 100_000
    tokens_per_batch: int = 25_000
    num_buckets: int = 12
    warmup_steps: int = 4000
    peak_learning_rate: float | None = None
    decay: str = "inverse_sqrt"
    label_smoothing: float = 0.1
    subword_dropout: float = 0.0
    subword_samples: int = 16
    consistency: float = 0.0
    clip_norm: float | None = None
    accumulate_steps: int = 1
    precision: str = "float32"
    validate_every: int = 1000
    validate_by: str = "perplexity"
    patience: int | None = None
    keep_checkpoints: int = 5
    average_last: int = 5
    average_best: int = 0
    seed: int = 1

    def __post_init__(self):
        check_types(self, "training")
        for key in (
            "steps",
            "tokens_per_batch",
            "num_buckets",
            "warmup_steps",
            "subword_samples",
            "accumulate_steps",
            "validate_every",
            "keep_checkpoints",
        ):
            require(getattr(self, key) > 0, f"training.{key}", "positive", getattr(self, key))
        for key in ("label_smoothing", "subword_dropout"):
            value = getattr(self, key)
            require(0 <= value < 1, f"training.{key}", "at least 0 and below 1", value)
        require(self.consistency >= 0, "training.consistency", "at least 0", self.consistency)
        for key in ("peak_learning_rate", "clip_norm"):
            value = getattr(self, key)
            require(value is None or value > 0, f"training.{key}", "positive or null", value)
        require(
            self.patience is None or self.patience > 0, "training.patience", "positive or null", self.patience
        )
        require(self.average_best >= 0, "training.average_best", "at least 0", self.average_best)
        require(
            not (self.average_last and self.average_best),
            "training.average_last",
            f"0 where average_best={self.average_best}",
            self.average_last,
        )
        require_one_of("training.decay", self.decay, ("inverse_sqrt", "cosine"))
        require_one_of("training.validate_by", self.validate_by, ("perplexity", "bleu"))
        require_one_of("training.precision", self.precision, PRECISIONS)
        require(
            0 <= self.average_last <= self.keep_checkpoints,
            "training.average_last",
            f"between 0 and keep_checkpoints={self.keep_checkpoints}",
            self.average_last,
        )


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The four sections of a configuration; the model's vocabulary sizes are those asked of the tokenizer."""

    model: TransformerConfig
    tokenizer: TokenizerConfig
    decoding: DecodingConfig
    training: TrainingConfig

    def __post_init__(self):
        require(
            not self.training.subword_dropout or self.tokenizer.kind == "bpe",
            "training.subword_dropout",
            f"0 where tokenizer.kind={self.tokenizer.kind}",
            self.training.subword_dropout,
        )


def load_recipe(config=None, overrides=()):
    """Reads a recipe.

    Args:
        config: a YAML file's path, or the name of a recipe that comes with the package, or None for the defaults: the
            paper's base model.
        overrides: strings `section.key=value`, the value in YAML.

    Returns:
        A `Recipe`.

    Raises:
        ConfigError: a file is missing, a key unknown, or a value breaks its rule.
    """
    sections = {} if config is None else read_yaml(_recipe_path(config))
    where = "--set" if config is None else config
    with naming(where):
        check_keys(sections, [field.name for field in dataclasses.fields(Recipe)])
    for override in overrides:
        key, equals, value = override.partition("=")
        section, dot, name = key.partition(".")
        if not (equals and dot and name):
            raise ConfigError(f"--set takes section.key=value; received {override!r}")
        with naming("--set"):
            check_keys({section: None}, [field.name for field in dataclasses.fields(Recipe)])
        try:
            sections.setdefault(section, {})[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"--set {key}: the value is not YAML; received {value!r}") from None
    with naming(where):
        tokenizer = from_dict(TokenizerConfig, sections.get("tokenizer") or {}, "tokenizer")
        return Recipe(
            model=_model_config(sections.get("model") or {}, tokenizer.vocab_size),
            tokenizer=tokenizer,
            decoding=from_dict(DecodingConfig, sections.get("decoding") or {}, "decoding"),
            training=from_dict(TrainingConfig, sections.get("training") or {}, "training"),
        )


def recipe_names():
    """The names of the recipes that come with the package, such as "multi30k" and "table3/A-h1"."""
    return sorted(path.relative_to(RECIPES).as_posix().removesuffix(".yaml") for path in RECIPES.rglob("*.yaml"))


def _model_config(section, vocab_size):
    known = ["preset", *(field.name for field in dataclasses.fields(TransformerConfig))]
    check_keys(section, known, "model")
    for key in ("source_vocab_size", "target_vocab_size"):
        if key in section:
            raise ConfigError(f"model.{key} follows from tokenizer.vocab_size; set that instead")
    sizes = {"source_vocab_size": vocab_size, "target_vocab_size": vocab_size}
    changes = {key: value for key, value in section.items() if key != "preset"}
    return TransformerConfig.preset(section.get("preset", "base"), **sizes, **changes)


def _recipe_path(config):
    path = pathlib.Path(config)
    if path.suffix in (".yaml", ".yml"):
        return path
    if config not in recipe_names():
        raise ConfigError(
            f"--config {config}: neither a .yaml file nor one of the recipes {', '.join(recipe_names())}"
        )
    return RECIPES / f"{config}.yaml"
