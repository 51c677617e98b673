"""Local server to try a model, with a web page and the REST API of TensorFlow Serving."""
