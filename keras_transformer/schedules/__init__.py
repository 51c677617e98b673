"""Learning rate schedules."""

from .warmup_inverse_sqrt import WarmupInverseSqrt

__all__ = ["WarmupInverseSqrt"]
