"""What a report reads of a document: its own fields, the others let be."""

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.spec import Spec, first_complaint
from trainplan.planner.documents import COUNTS, layout_from_json

DERIVED = "num_microbatches"
"""In layouts that are written with what follows from them; a sweep writes the axes alone."""


class Read(Spec):
    """The part of a document that is drawn."""

    model_config = ConfigDict(extra="ignore")


Kind = TypeVar("Kind")


def read(kind: type[Kind], values: Mapping[str, object]) -> Kind:
    """The values of a document.

    Raises:
        SpecError: A field is missing or wrong; the message names it.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise SpecError(f"{first_complaint(error).text}: make the document again") from error


def _layout(value: object) -> object:
    if not isinstance(value, Mapping) or DERIVED not in value:
        return value
    try:
        return layout_from_json(value)
    except ValidationError as error:
        raise ValueError(first_complaint(error).text) from error


def _model(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {name: one for name, one in value.items() if name not in COUNTS}


LayoutValue = Annotated[Layout, BeforeValidator(_layout)]
"""A layout as documents write it, with the numbers that follow from it."""
ModelValue = Annotated[ModelSpec, BeforeValidator(_model)]
"""A model as documents write it, with its parameter counts."""
