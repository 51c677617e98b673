"""Local server for trying out a model, with a web page and the REST API of TensorFlow Serving."""
