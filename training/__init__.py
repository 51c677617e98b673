"""From a corpus to a model directory."""
