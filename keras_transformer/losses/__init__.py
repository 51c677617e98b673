"""Cross-entropy with label smoothing over all tokens that are not padding (section 5.4)."""

from .masked_label_smoothed_crossentropy import MaskedLabelSmoothedCrossentropy
from .token_crossentropy import (
    SMALLEST_PROBABILITY,
    token_crossentropy,
    token_mask,
    token_weights,
)

__all__ = [
    "SMALLEST_PROBABILITY",
    "MaskedLabelSmoothedCrossentropy",
    "token_crossentropy",
    "token_mask",
    "token_weights",
]
