"""The model directory: the one contract between training, translating and exporting."""

from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .directory import ModelDir

__all__ = ["ModelDir"]
