"""Benchmarks. They are run from the root of the repository and are not installed."""

import os

# As the command `keras-transformer` does: TensorFlow's remarks would hide error messages, here and
# in the contenders.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
