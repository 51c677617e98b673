"""The command `keras-transformer train` of the benchmarks, and the sizes of their model."""

import os
import sys
from collections.abc import Mapping
from typing import Any

COMMAND = (sys.executable, "-m", "keras_transformer")
SIZES: dict[str, Any] = dict(num_layers=3, d_model=256, d_ff=1024, num_heads=4, dropout=0.1)
TOKENS_PER_BATCH = 3000


def train_command(
    model_dir: str | os.PathLike[str], text: Mapping[str, object], settings: Mapping[str, object]
) -> list[object]:
    """Returns the arguments of `keras-transformer train`.

    Args:
        model_dir: str or path of the model directory to write.
        text: Mapping from the options of the text, such as `--source`, to their values.
        settings: Mapping from fields of the recipe to their values.
    """
    command: list[object] = [*COMMAND, "train", "--model-dir", model_dir]
    for option, value in text.items():
        command += [option, value]
    command.append("--set")
    command += [f"{name}={value}" for name, value in settings.items()]
    return command


def settings_of(sizes: Mapping[str, Any], vocab_size: int, steps: int) -> dict[str, object]:
    """Returns the settings of a training run without an average of checkpoints."""
    return {
        **{f"model.{name}": value for name, value in sizes.items()},
        "tokenizer.vocab_size": vocab_size,
        "training.steps": steps,
        "training.tokens_per_batch": TOKENS_PER_BATCH,
        "training.average_last": 0,
    }
