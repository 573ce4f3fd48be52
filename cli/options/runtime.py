"""`--option NAME=VALUE`: settings of a runtime that change time or memory but not the layout."""

from __future__ import annotations

from typing import get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.base.validation_errors import first_complaint
from trainplan.costmodel.spec import RuntimeOptions


def listed() -> tuple[str, ...]:
    """Every setting with its values."""
    return tuple(f"{name}={_values(field)}" for name, field in FIELDS.items())


def _values(field: FieldInfo) -> str:
    kinds = get_args(field.annotation)  # X | None
    if bool in kinds:
        return "true|false"
    words = [word for kind in kinds for word in get_args(kind) if isinstance(word, str)]
    return "|".join(words) or "N"


FIELDS = RuntimeOptions.model_fields


def parse_options(texts: tuple[str, ...]) -> RuntimeOptions:
    """Read the settings.

    Raises:
        SpecError: A text is not NAME=VALUE, is given twice, or the value is none of the allowed.
        CatalogError: No such setting; the message names the nearest.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise SpecError(f"--option {text!r}: write NAME=VALUE, such as attention=unfused")
        if name not in FIELDS:
            raise unknown_name("option", name, FIELDS, f"known: {', '.join(FIELDS)}")
        if name in values:
            raise SpecError(f"--option {name} is given twice: give it once")
        values[name] = value
    try:
        return RuntimeOptions.model_validate(values)
    except ValidationError as error:
        first = first_complaint(error)
        name = str(first.place[0])
        raise SpecError(f"--option {name}={values[name]}: {first.reason}") from None
