"""In which precision models compute."""

from typing import Literal

# int8 is that of the matrices in a file; models then compute in float32.
Precision = Literal["float32", "bfloat16", "int8"]
PrecisionOrAuto = Literal["auto", "float32", "bfloat16", "int8"]
TrainingPrecision = Literal["auto", "float32", "bfloat16", "float16"]
