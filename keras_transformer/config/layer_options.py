"""The values of options that layers and configurations share."""

from typing import Literal

Normalization = Literal["layer", "rms"]
# Positions that are added to the embeddings.
AddedPositions = Literal["sinusoidal", "tensor2tensor", "learned"]
# Positions that attention applies to its queries, keys and scores.
RelativePositions = Literal["rotary", "alibi", "t5"]
# Number of buckets of relative positions in T5.
T5_BUCKETS = 32
