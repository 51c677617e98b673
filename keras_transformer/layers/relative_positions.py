"""The argument `relative_positions` of attention: its values, and the schemes that it names."""

from typing import Any, get_args

import keras

from ..checks import one_of
from ..config.layer_options import RelativePositions
from .alibi_positions import AlibiPositions
from .position_scheme import PositionScheme
from .rotary_positions import RotaryPositions
from .t5_positions import T5Positions

_SCHEMES = {"rotary": RotaryPositions, "alibi": AlibiPositions, "t5": T5Positions}


def check_relative_positions(
    relative_positions: RelativePositions | PositionScheme | dict[str, Any] | None,
) -> RelativePositions | PositionScheme | None:
    """Checks `relative_positions` and returns it, deserialized if it is a configuration."""
    if isinstance(relative_positions, dict):
        relative_positions = keras.saving.deserialize_keras_object(relative_positions)
    if isinstance(relative_positions, PositionScheme):
        return relative_positions
    choices = get_args(RelativePositions)
    return one_of("relative_positions", relative_positions, choices, optional=True)


def serialize_relative_positions(
    relative_positions: RelativePositions | PositionScheme | None,
) -> Any:
    """Returns `relative_positions`, serialized for a configuration."""
    if isinstance(relative_positions, PositionScheme):
        return keras.saving.serialize_keras_object(relative_positions)
    return relative_positions


def make_position_scheme(
    relative_positions: RelativePositions | PositionScheme | None, dtype: keras.DTypePolicy
) -> PositionScheme:
    """Returns the scheme that the argument names, or one that changes nothing for None."""
    if isinstance(relative_positions, PositionScheme):
        return relative_positions
    scheme = PositionScheme if relative_positions is None else _SCHEMES[relative_positions]
    return scheme(dtype=dtype, name="position_scheme")


def is_rotary(relative_positions: RelativePositions | PositionScheme | None) -> bool:
    return relative_positions == "rotary" or isinstance(relative_positions, RotaryPositions)
