"""Rematerialization (`keras.RematScope`) of layers that take flags and masks, draw random numbers and hold layers."""

from collections.abc import Callable
from typing import Any

import keras

from ..masks import attach_mask, implicit_mask
from ..tensors import Tensor


class Layer(keras.layers.Layer):
    """Base class of all layers here: a Keras layer that may be made and called in any `keras.RematScope`.

    Keras hands `call` to the backend as it is. There, flags become tensors (JAX), two inputs that are one tensor become
    two (JAX, PyTorch), dropout draws other numbers the second time (PyTorch), and weights are refused (TensorFlow).
    """

    def rematerialized_call(self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """Returns `layer_call` as a function that is computed again for its gradient, if the scope says so.

        Args:
            layer_call: the method to call.
            *args: what it will be called with.
            **kwargs: likewise.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            variables, states = self.trainable_variables, self.non_trainable_variables
            weights = [variable.value for variable in variables]
            state_values = [keras.ops.copy(state) for state in states]  # PyTorch overwrites them.
            inputs = {id(one): one for one in keras.tree.flatten((args, kwargs)) if _is_float_tensor(one)}

            def computed(*tensors: Tensor) -> tuple[Any, dict[int, Tensor], list[Tensor]]:
                replaced = dict(zip(inputs, map(_with_mask_of, tensors, inputs.values())))
                own_args, own_kwargs = keras.tree.map_structure(lambda one: replaced.get(id(one), one), (args, kwargs))
                own_weights = tensors[len(inputs) :] or weights
                values = [*zip(variables, own_weights), *zip(states, state_values)]
                with keras.StatelessScope(values, collect_losses=True) as scope:
                    before = list(map(scope.get_current_value, states))
                    outputs = layer_call(*own_args, **own_kwargs)
                    after = enumerate(map(scope.get_current_value, states))
                return outputs, {i: value for i, value in after if value is not before[i]}, scope.losses

            recomputed = super(Layer, self).rematerialized_call(computed, *args, **kwargs)
            if recomputed is computed:
                return layer_call(*args, **kwargs)
            for layer in self._flatten_layers(include_self=False):
                layer._remat_mode = None  # It is computed again with this one.
            # TensorFlow finds gradients of what is passed only, the others also of what a function closes over.
            on_tensorflow = keras.backend.backend() == "tensorflow"
            passed = [*inputs.values(), *map(keras.ops.copy, weights)] if on_tensorflow else []
            outputs, new_values, losses = recomputed(*passed)
            for i, value in new_values.items():
                states[i].assign(value)
            for loss in losses:
                self.add_loss(loss)
            return outputs

        return call


def _is_float_tensor(value: Any) -> bool:
    return keras.ops.is_tensor(value) and keras.backend.is_float_dtype(keras.backend.standardize_dtype(value.dtype))


def _with_mask_of(tensor: Any, other: Tensor) -> Tensor:
    mask = implicit_mask(other)
    if mask is not None:
        attach_mask(tensor, mask)
    return tensor
