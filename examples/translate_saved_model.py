"""Translates standard input with an exported SavedModel; needs only tensorflow and tensorflow-text.

python examples/translate_saved_model.py servable/en-de/1 < in.txt > out.txt
"""

import os
import sys

# Hides most of what TensorFlow logs about the processor and missing GPUs.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's ops)

translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
lines = [line.removesuffix(b"\n") for line in sys.stdin.buffer]
for text in translate(text=tf.constant(lines, tf.string))["text"].numpy():
    sys.stdout.buffer.write(text + b"\n")
