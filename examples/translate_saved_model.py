"""Translates standard input with an exported SavedModel; needs only tensorflow and tensorflow-text.

python examples/translate_saved_model.py servable/en-de/1 < in.txt > out.txt
"""

import os
import sys

# TensorFlow writes about missing GPUs to file descriptor 2. Python's errors still go to standard
# error.
sys.stderr = os.fdopen(os.dup(2), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401  (registers the tokenizer's ops)

translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
lines = [line.removesuffix(b"\n").removesuffix(b"\r") for line in sys.stdin.buffer]
for text in translate(text=tf.constant(lines, tf.string))["text"].numpy():
    sys.stdout.buffer.write(text + b"\n")
