"""From a class to its schema: meanings of keys, and what is always there."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from trainplan.planner.documents import BASES, Document

Mode = Literal["validation", "serialization"]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: object, mode: Mode) -> dict[str, object]:
    """The schema of a class; of what we write, every key is there, and further ones may come."""
    adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", kind))
    generated = adapter.json_schema(mode=mode, schema_generator=_Described)
    plain = _open(generated) if mode == "serialization" else generated
    assert isinstance(plain, dict)
    return {"$schema": DIALECT, **plain}


class _Described(GenerateJsonSchema):
    """Without titles, which repeat names, and with the meanings of keys."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Never."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A spec."""
        return self._with_meanings(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A result or a document."""
        return self._with_meanings(super().dataclass_schema(schema), schema["cls"])

    def _with_meanings(self, value: JsonSchemaValue, owner: type) -> JsonSchemaValue:
        properties = value.get("properties", {})
        known = meanings(owner)
        for name, one in properties.items():
            if name in known:
                one.setdefault("description", known[name])
        if self.mode == "serialization" and not issubclass(owner, Document):
            value["required"] = list(properties)
        value.pop("title", None)
        return value


def _open(value: object) -> object:
    """Without the refusal of other keys."""
    if isinstance(value, list):
        return [_open(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _open(one)
        for key, one in value.items()
        if not (key == "additionalProperties" and one is False)
    }


@cache
def meanings(owner: type) -> Mapping[str, str]:
    """What the fields of a class mean, those of its bases included."""
    if owner in BASES:
        return meanings(BASES[owner])
    texts: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] == __name__.partition(".")[0]:
            texts |= {name: text for name, text in documented(base) if text}
            texts |= vars(base).get("TEXTS", {})
    return texts


def documented(owner: type) -> Iterator[tuple[str, str]]:
    """Fields of a class with the docstrings that follow them; empty where there is none."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(field.annotation):
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
        yield field.target.id, text
