"""Exports translators as SavedModels, ONNX graphs, and CTranslate2 and Hugging Face models."""
