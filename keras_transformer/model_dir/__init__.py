"""The model directory: the one contract between training, translating and exporting."""

from .directory import ModelDir

__all__ = ["ModelDir"]
