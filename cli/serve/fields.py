"""What requests are made of: marks that say how a field is typed, and fields that several have."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from trainplan.cli.options import names

Given = dict[str, Any]
"""A document that is given inline."""


def one_of(*names: str | None) -> dict[str, Any]:
    """What a schema says of a field that takes some names alone; the command refuses others."""
    return {"enum": list(names)}


def optional(description: str, *examples: object, default: object = None, **limits: Any) -> Any:  # noqa: ANN401 (as Field)
    """A field that may be left out: what it is, and examples of it."""
    return Field(default, description=description, examples=list(examples) or None, **limits)


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
        "`plan calibrate`."
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
        ),
    ] = None
