"""From a translator to what serves it: a SavedModel, or a model of CTranslate2 or Hugging Face."""
