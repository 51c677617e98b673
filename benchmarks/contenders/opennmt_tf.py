"""OpenNMT-tf's own trainer with its automatic settings; its log gives the speed.

It reads the same subwords and makes its own batches, with as many tokens. It counts end tokens as target tokens, as the
other contenders do. Settings that would make the model a different one are changed: normalization comes after the
residual sum, dropout is applied where the paper applies it, and projections have no bias.

To be run with the Python interpreter of an environment that has OpenNMT-tf.
"""

import argparse
import json
import logging
import re
import tempfile

import opennmt
import tensorflow as tf

from benchmarks.processes import versions
from benchmarks.training_task import TrainingTask

REPORT = re.compile(r"Step = (\d+) .* (\d+) target\)")


class SpeedHandler(logging.Handler):
    """Collects the target tokens per second that the trainer logs.

    Attributes:
        speeds: dict from steps to target tokens per second.
    """

    def __init__(self) -> None:
        super().__init__()
        self.speeds: dict[int, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if found := REPORT.search(record.getMessage()):
            self.speeds[int(found[1])] = int(found[2])


def build_model(
    num_layers: int | tuple[int, int], d_model: int, d_ff: int, num_heads: int, dropout: float
) -> opennmt.models.Transformer:
    """Builds the model.

    Args:
        num_layers: the number of layers, or those in the encoder and in the decoder.
        d_model, d_ff, num_heads, dropout: see TransformerConfig.
    """
    return opennmt.models.Transformer(
        opennmt.inputters.WordEmbedder(embedding_size=d_model),
        opennmt.inputters.WordEmbedder(embedding_size=d_model),
        num_layers=num_layers,
        num_units=d_model,
        num_heads=num_heads,
        ffn_inner_dim=d_ff,
        dropout=dropout,
        attention_dropout=0,
        ffn_dropout=0,
        mha_bias=False,
        output_layer_bias=False,
        pre_norm=False,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )


def main() -> None:
    """Measures the contender and prints its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", metavar="TASK", help="the task's directory")
    options = parser.parse_args()
    task = TrainingTask(options.task)
    facts = task.facts
    steps = facts["steps"]
    vocabulary = str(task.path / "vocabulary.txt")
    handler = SpeedHandler()
    tf.get_logger().setLevel(logging.INFO)
    tf.get_logger().addHandler(handler)
    with tempfile.TemporaryDirectory() as model_dir:
        config = {
            "model_dir": model_dir,
            "data": {
                "train_features_file": str(task.path / "ids.en"),
                "train_labels_file": str(task.path / "ids.de"),
                "source_vocabulary": vocabulary,
                "target_vocabulary": vocabulary,
            },
            "train": {
                "batch_size": facts["tokens_per_batch"],
                "effective_batch_size": None,
                "max_step": 2 * steps,
                "save_summary_steps": steps,
                "save_checkpoints_steps": None,
                "average_last_checkpoints": 0,
            },
        }
        opennmt.Runner(build_model(**facts["sizes"]), config, auto_config=True).train()
    # The speed of the second half, after the warm-up.
    print(json.dumps({"value": handler.speeds[2 * steps], "versions": versions("OpenNMT-tf", "tensorflow")}))


if __name__ == "__main__":
    main()
