"""Base of every spec: frozen, no unknown keys, no NaN; its validator is built when first used."""

from typing import cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from trainplan.costmodel.spec.validation_errors import shown

INNER = ("schema", "items_schema", "values_schema", "choices", "fields")
"""Keys of a schema of pydantic below which those of its parts are."""


def _number(value: object) -> object:
    """A number, or one as text: no true or false, no `1_0`, no digits of other scripts."""
    odd = isinstance(value, str) and ("_" in value or not value.isascii())
    if odd or isinstance(value, bool):
        raise ValueError(f"must be a number, got {shown(value)}")
    return value


def _switch(value: object) -> object:
    """True or false, or one of them as text: no `yes` and no 1."""
    if type(value) in (int, float) or (isinstance(value, str) and value not in ("true", "false")):
        raise ValueError(f"must be true or false, got {shown(value)}")
    return value


CHECKS = {"int": _number, "float": _number, "bool": _switch}


def _strict(schema: object) -> object:
    """A schema that checks what it is given before pydantic makes a number or a switch of it."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict) or schema.get("type") == "model":
        return schema
    check = CHECKS.get(schema.get("type", ""))
    if check:
        return core_schema.no_info_before_validator_function(check, cast("CoreSchema", schema))
    inner = INNER if "type" in schema else schema
    return schema | {key: _strict(schema[key]) for key in inner if key in schema}


class Spec(BaseModel):
    """An immutable, hashable value read from a file or given by the caller."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Of a model, within what its validators wrap."""
        whole = handler(source)
        inner: dict[str, object] = cast("dict[str, object]", whole)
        while inner["type"] != "model" and isinstance(inner.get("schema"), dict):
            inner = cast("dict[str, object]", inner["schema"])
        if inner["type"] == "model":
            inner["schema"] = _strict(inner["schema"])
        return whole


class Sourced(Spec):
    """A catalog number with its source; a number without one is refused."""

    value: float
    source: str
