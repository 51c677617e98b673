"""How many operations TensorFlow runs for one token: with a small model, these take more time than
the products."""

import collections

import pytest
import tensorflow as tf
from session_mode import SavedModelSession

from keras_transformer import Translator
from keras_transformer.config import DecodingConfig
from keras_transformer.export.servable import export_servable
from keras_transformer.translation import executor

# By beam size, for a decoder of one layer, without oneDNN; counted once, to notice when a change
# adds operations.
OPERATIONS = {1: 230, 4: 375}


@pytest.mark.parametrize("beam_size", OPERATIONS)
def test_a_step_runs_few_operations(beam_size, tiny_model_dir, tmp_path, monkeypatch):
    # Only the default executor traces operations.
    monkeypatch.setattr(executor, "is_on_cpu", lambda: tf.constant(False))
    translator = Translator.load(tiny_model_dir, DecodingConfig(beam_size=beam_size))
    path = export_servable(translator, tmp_path, signatures=["translate"], verified=False)
    model = SavedModelSession(path)
    signature = model.signatures["translate"]
    fed = {signature.inputs["text"].name: ["the cat sees the dog"]}
    metadata = tf.compat.v1.RunMetadata()
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
    model.session.run(signature.outputs["text"].name, fed, options, metadata)
    model.close()
    runs = collections.Counter(
        node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats
    )
    # Operations of the loop run once a step, all others once or twice; those of its condition once
    # more at its end.
    num_steps = collections.Counter(times for times in runs.values() if times > 3).most_common(1)[
        0
    ][0]
    num_operations = sum(times >= num_steps for times in runs.values())
    assert num_operations <= 1.1 * OPERATIONS[beam_size]
