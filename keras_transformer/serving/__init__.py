"""A server to try a model with: a page, and TensorFlow Serving's REST API."""
