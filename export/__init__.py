"""From a model directory to a SavedModel."""
