"""The model directory, which connects training, translation and export."""

from ..runtime.packages import missing_packages_named

with missing_packages_named():
    from .directory import ModelDir

__all__ = ["ModelDir"]
