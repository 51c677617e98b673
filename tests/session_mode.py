"""SavedModels as TensorFlow Serving runs them."""

import numpy as np
import tensorflow as tf


class SavedModelSession:
    """A SavedModel in a Session, as in TensorFlow Serving, with all names from its signatures."""

    def __init__(self, path, config=None):
        graph = tf.Graph()
        with graph.as_default():
            self.session = tf.compat.v1.Session(config=config)
            self.signatures = tf.compat.v1.saved_model.load(
                self.session, ["serve"], str(path)
            ).signature_def

    def __call__(self, name, inputs):
        """Runs a signature with inputs by name, as arrays or lists; returns its outputs by name."""
        signature = self.signatures[name]
        fed = {
            info.name: as_array(inputs[key], info.dtype) for key, info in signature.inputs.items()
        }
        return self.session.run({key: info.name for key, info in signature.outputs.items()}, fed)

    def close(self):
        self.session.close()


def as_array(values, dtype):
    if dtype == tf.string.as_datatype_enum and not isinstance(values, np.ndarray):
        # Not an array of bytes of one length, which loses the NULs at their ends.
        return np.array([*values, None], object)[:-1]
    return np.asarray(values, tf.dtypes.as_dtype(dtype).as_numpy_dtype)


def run_session(path, batches):
    """The texts and scores of `serving_default`, of a SavedModel that nothing else is asked."""
    model = SavedModelSession(path)
    answers = [model("serving_default", {"text": batch}) for batch in batches]
    model.close()
    return [(list(answer["text"]), list(answer["score"])) for answer in answers]
