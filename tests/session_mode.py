"""SavedModels as TensorFlow Serving runs them."""

import numpy as np
import tensorflow as tf


def run_session(path, batches):
    """In a Session, as TensorFlow Serving does, with all names from the signature."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        signature = meta_graph.signature_def["serving_default"]
        fetched = [signature.outputs["text"].name, signature.outputs["score"].name]
        answers = []
        for batch in batches:
            fed = np.array(batch + [None], object)[:-1]
            texts, scores = session.run(fetched, {signature.inputs["text"].name: fed})
            answers.append((list(texts), list(scores)))
    return answers
