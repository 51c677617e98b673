"""The section `training`: how a model is trained."""

import dataclasses
from typing import Annotated, Literal

from ..rules import Count, NonNegative, Positive, Rate, Size, at_most, require
from .mappings import check_fields
from .values import TrainingPrecision

Steps = Annotated[Size, at_most(1_000_000_000)]


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained (section 5 of the paper).

    Args:
        steps: int. Number of updates; at most 1,000,000,000. Defaults to 100,000.
        tokens_per_batch: int. At most this many source positions, and as many target positions, in a batch, on all
            devices together; at most 10,000,000. Defaults to 25,000.
        num_buckets: int. At most this many different batch shapes; more shapes mean less padding. At most 1,000.
            Defaults to 12.
        warmup_steps: int. Updates until the learning rate peaks; at most 1,000,000,000. Defaults to 4000.
        peak_learning_rate: float or None. The peak; at most 1,000,000. Defaults to the paper's,
            `(d_model * warmup_steps) ** -0.5`.
        decay: "inverse_sqrt", the paper's decay after the peak; "cosine", which reaches 0 at the last step and is
            better for short training runs; or "constant", which stays at the peak, to fine-tune. Defaults to
            "inverse_sqrt".
        label_smoothing: float. ε_ls (section 5.4). Defaults to 0.1.
        subword_dropout: float. BPE-dropout (Provilkov et al. 2020): rate at which merges are skipped in the
            training text, so that the model sees a sentence in several segmentations. For small corpora, with
            tokenizers of kind "bpe". Defaults to 0.
        subword_samples: int. Segmentations of each sentence if `subword_dropout` is not 0, shapes of each sentence with
            `data.augment`, and draws of terms with `data.terms`; at most 1,000. Defaults to 16.
        consistency: float. α of R-Drop (Liang et al. 2021): each batch passes through the model twice with
            different dropout, and a loss draws the two predictions together. For small corpora; takes twice the time.
            At most 1,000. Defaults to 0: one pass, as in the paper.
        guided_alignment: float. Weight of a loss by which the first head of the decoder's last layer learns to attend
            to the source token that a token translates (Garg et al. 2019), as IBM Model 1 finds it in the training
            text; at most 1,000, such as 0.1. For alignments, and for pictures of attention. Defaults to 0: none.
        clip_norm: float or None. Largest norm of the gradient; at most 1,000,000. For training runs that diverge.
            Defaults to None.
        accumulate_steps: int. Number of parts in which a device computes its share of a batch, one after another, so
            that larger batches fit into its memory; the result is the same. At most 1,000. Defaults to 1.
        freeze: str. Which weights are not trained: "none"; "embeddings", and with them an output projection that
            shares them; "encoder", its layers; or "both". To fine-tune on little text. Defaults to "none".
        precision: "float32", "bfloat16" or "float16" (both mixed: weights stay in float32), or "auto": the one in
            which the device multiplies fastest; float16 only on GPUs that do not have bfloat16. In float16, gradients
            are scaled to its small range. A step in which one still overflows is skipped: it counts, but changes no
            weights. Defaults to "auto".
        validate_every: int. Updates between validations, which save a checkpoint; at most 1,000,000,000.
            Defaults to 1000.
        validate_by: "perplexity", or "bleu", which translates the validation text by greedy search: the score by
            which checkpoints are compared. Defaults to "perplexity".
        ema: float. Decay of an exponential moving average of the weights, which is validated, ranked, and
            saved for translation. It covers about the last `1 / (1 - ema)` updates, but at most about a tenth of
            all: 0.99 suits thousands of updates, 0.999 tens of thousands. It gains most while the learning rate is
            high, and little once it has decayed to 0. Defaults to 0: no average.
        patience: int or None. Training stops after this many validations without a new best; at most 1,000,000.
            Defaults to None: never.
        keep_checkpoints: int. How many of the last checkpoints are kept; at most 1,000. Defaults to 5.
        average_last: int. How many of the last checkpoints are averaged when training ends; at most
            `keep_checkpoints`. Defaults to 5.
        average_best: int. How many of the best checkpoints are kept, and averaged instead of the last; at most
            1,000. Defaults to 0.
        seed: int. Seed of the initial weights, of the order of the text and of dropout; at most 4,294,967,295.
            Defaults to 1.

    Raises:
        ConfigError: A value breaks its rule.
    """

    steps: Steps = 100_000
    tokens_per_batch: Annotated[Size, at_most(10_000_000)] = 25_000
    num_buckets: Annotated[Size, at_most(1000)] = 12
    warmup_steps: Steps = 4000
    peak_learning_rate: Annotated[Positive, at_most(1_000_000)] | None = None
    decay: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"
    label_smoothing: Rate = 0.1
    subword_dropout: Rate = 0.0
    subword_samples: Annotated[Size, at_most(1000)] = 16
    consistency: Annotated[NonNegative, at_most(1000)] = 0.0
    guided_alignment: Annotated[NonNegative, at_most(1000)] = 0.0
    clip_norm: Annotated[Positive, at_most(1_000_000)] | None = None
    accumulate_steps: Annotated[Size, at_most(1000)] = 1
    freeze: Literal["none", "embeddings", "encoder", "both"] = "none"
    precision: TrainingPrecision = "auto"
    validate_every: Steps = 1000
    validate_by: Literal["perplexity", "bleu"] = "perplexity"
    ema: Rate = 0.0
    patience: Annotated[Size, at_most(1_000_000)] | None = None
    keep_checkpoints: Annotated[Size, at_most(1000)] = 5
    average_last: Annotated[Count, at_most(1000)] = 5
    average_best: Annotated[Count, at_most(1000)] = 0
    seed: Annotated[Count, at_most(2**32 - 1)] = 1

    def __post_init__(self) -> None:
        check_fields(self, "training")
        last, most = self.average_last, self.keep_checkpoints
        rule = f"0 if average_best={self.average_best}"
        require(not (last and self.average_best), "training.average_last", rule, last)
        require(last <= most, "training.average_last", f"at most keep_checkpoints={most}", last)
