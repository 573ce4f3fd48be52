"""What requests are made of: marks of how a field is typed, and fields that several have."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from trainplan.cli.options import names

Given = dict[str, Any]
"""A document that is given inline."""
SELDOM: JsonDict = {"seldom": True}
"""Marks a field that the list of tools does not name."""


def optional(
    description: str,
    *examples: object,
    default: object = None,
    seldom: bool = False,
    brief: str = "",
    enum: Sequence[str | None] = (),
    **limits: Any,  # noqa: ANN401 (as Field)
) -> Any:  # noqa: ANN401 (as Field)
    """A field that may be left out: what it is, and examples of it.

    In the list of tools it is not named where it is needed seldom, and has its `brief` description
    without its names where it has one. The command refuses names that `enum` has not.
    """
    extra: JsonDict = {"seldom": seldom, "brief": brief, "enum": list(enum)}
    return Field(
        default,
        description=description,
        examples=list(examples) or None,
        json_schema_extra={key: value for key, value in extra.items() if value},
        **limits,
    )


seldom = partial(optional, seldom=True)
"""A field that few need: `plan schema TOOL-request` has it, the list of tools has not."""


class Positional:
    """Marks a field that is typed without the name of an option."""


class Subcommand:
    """Marks a field that is typed after the command."""


class Inline:
    """Marks a field that is a name, or a document that is given inline."""


class New:
    """Marks a field that is the name of a file or folder to make, where the server allows it."""


class Apart:
    """Marks a field that is for the server, not for the command."""


Size = Annotated[int, Field(ge=1, le=names.LARGEST_SIZE)]
Layout = Annotated[
    str,
    Field(
        description="FIELD=VALUE,... Degrees are counts of GPUs. What is left out: dp fills the "
        "cluster, zero_stage=1, all else 1 or off. Fields: tp pp vpp cp dp ep etp dp_replicate "
        "zero_stage sequence_parallel micro_batch_size schedule recompute recompute_modules "
        "recompute_method recompute_num_layers offload offload_modules stages.",
        examples=["tp=8,pp=4,vpp=2,micro_batch_size=1,sequence_parallel=true"],
    ),
]
Profiles = Annotated[
    tuple[str | Given, ...],
    Inline(),
    Field(
        description="Measurements instead of the catalog's numbers: documents of `plan profile` or "
        "`plan calibrate`.",
        json_schema_extra=SELDOM,
    ),
]
PlanGiven = Annotated[
    str | Given,
    Inline(),
    Positional(),
    Field(
        description="A plan: the name that an answer of `search` was kept under, or the document.",
        examples=["plan-1"],
    ),
]
TimeLimit = Annotated[
    float | None,
    Apart(),
    Field(gt=0, description="Seconds, at most those of the server: the answer is the best by then"),
]
MemoryMargin = Annotated[
    float, Field(ge=0, lt=1, description="Share of the memory of every GPU that must stay free.")
]


FitChance = Annotated[float, Field(gt=0, lt=1, description="Chance to fit that a layout needs.")]


class Request(BaseModel):
    """What every tool takes."""

    INTENDED: ClassVar[Mapping[str, str]] = {}
    """What to give in place of arguments that are none."""
    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def marked(cls, mark: type) -> list[str]:
        """Its fields with a mark."""
        fields = cls.model_fields.items()
        return [name for name, one in fields if any(isinstance(m, mark) for m in one.metadata)]

    def stated(self, mark: type) -> bool:
        """Is one of them given?"""
        return any(getattr(self, name) is not None for name in self.marked(mark))

    parts: Annotated[
        list[str] | None,
        Apart(),
        Field(
            description="Only these keys of the answer's document, to keep it short; a key of a "
            "mapping in it with a dot.",
            examples=[["best", "certificate"]],
            json_schema_extra=SELDOM,
        ),
    ] = None

    @classmethod
    def full(cls) -> Any:  # noqa: ANN401 (a schema)
        """The JSON Schema of all its fields."""
        return _plain(cls.model_json_schema())

    @classmethod
    def brief(cls) -> Any:  # noqa: ANN401 (a schema)
        """The JSON Schema that agents pay for with every session: what most requests need.

        Fields that are not named are taken as well.
        """
        found = cls.model_json_schema()
        named = found["properties"]
        shown = {name: _shortened(one) for name, one in named.items() if "seldom" not in one}
        if len(shown) < len(named) or any("brief" in one for one in named.values()):
            del found["additionalProperties"]
        found |= {"properties": shown}
        del found["description"]
        return _plain(found)


def _shortened(one: Mapping[str, Any]) -> dict[str, Any]:
    """A field without what a client need not send."""
    kept = dict(one)
    if "brief" in kept:
        kept["description"] = kept.pop("brief")
        kept.pop("enum", None)
    if kept.get("default", ...) in (None, []):
        del kept["default"]
    kinds = [kind for kind in kept.pop("anyOf", ()) if kind != {"type": "null"}]
    kept = {"anyOf": kinds} | kept if len(kinds) > 1 else (kinds[0] if kinds else {}) | kept
    if "enum" in kept:
        kept["enum"] = [name for name in kept["enum"] if name is not None]
    return kept


def _plain(value: object) -> Any:  # noqa: ANN401 (a part of a schema)
    """A schema without titles, which repeat names, and without our own marks."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        marks = ("title", "seldom", "brief")
        return {key: _plain(one) for key, one in value.items() if key not in marks}
    return value
