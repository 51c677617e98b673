"""From a translator to what serves it: a SavedModel, or a CTranslate2 model."""
