"""Makes sentence pairs with a model: back-translation and distillation."""
