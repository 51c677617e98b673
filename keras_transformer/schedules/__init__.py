"""Schedules of the learning rate."""

from .warmup_inverse_sqrt import WarmupInverseSqrt

__all__ = ["WarmupInverseSqrt"]
