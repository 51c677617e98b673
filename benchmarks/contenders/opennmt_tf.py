"""OpenNMT-tf's own trainer with its automatic settings: the speed that its log gives for its second report.

It reads the same subwords, and makes batches of as many tokens by itself. Its count of target tokens includes the end
token, as ours does. What would make it another model is set otherwise: layers normalise after the sum, dropout is
where the paper has it, and projections have no bias.

Run by the Python of an environment that has OpenNMT-tf.
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


class Reports(logging.Handler):
    """Keeps target tokens per second by step, as the trainer logs them."""

    def __init__(self):
        super().__init__()
        self.speeds = {}

    def emit(self, record):
        if found := REPORT.search(record.getMessage()):
            self.speeds[int(found[1])] = int(found[2])


def build_model(num_layers, d_model, d_ff, num_heads, dropout):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    options = parser.parse_args()
    task = TrainingTask(options.task)
    facts = task.facts
    steps = facts["steps"]
    vocabulary = str(task.path / "vocabulary.txt")
    reports = Reports()
    tf.get_logger().setLevel(logging.INFO)
    tf.get_logger().addHandler(reports)
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
    print(json.dumps({"value": reports.speeds[2 * steps], "versions": versions("OpenNMT-tf", "tensorflow")}))


if __name__ == "__main__":
    main()
