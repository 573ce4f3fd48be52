"""What the importers share: what they need to be given, and units."""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.job import Precision
from trainplan.profiler.importers import ImportRequest

MILLISECOND = 1e-3
MEBIBYTE = 2**20
GIBIBYTE = 2**30


def need_model(request: ImportRequest, file: str) -> ModelSpec:
    """The model the layers are of.

    Raises:
        SpecError: The caller gave none.
    """
    if request.model is None:
        raise SpecError(f"{file} does not say which model its layers are of: give --model")
    return request.model


def need_seq_length(request: ImportRequest, file: str) -> int:
    """Tokens of a sequence.

    Raises:
        SpecError: The caller gave none.
    """
    if request.seq_length is None:
        raise SpecError(f"{file} does not say how long its sequences are: give --seq-length")
    return request.seq_length


def need_precision(request: ImportRequest, file: str) -> Precision:
    """Format of the products.

    Raises:
        SpecError: The caller gave none.
    """
    if request.precision is None:
        raise SpecError(f"{file} does not say its number format: give --precision")
    return request.precision


def unknown_file(file: str, tool: str, known: str) -> SpecError:
    """The error of a file whose name says nothing."""
    return SpecError(f"{file}: not a name {tool} writes: expected {known}")
