"""From a model directory to what serves it: a SavedModel, or a CTranslate2 model."""
