"""In which precision models compute."""

from typing import Literal

Precision = Literal["float32", "bfloat16"]
PrecisionOrAuto = Literal["auto", "float32", "bfloat16"]
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float16"]
