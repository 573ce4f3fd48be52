"""How tokens choose experts: what the model's router does; no runtime has a setting for it."""

import math
import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from trainplan.costmodel.spec import Spec

STEEPEST = 10.0
"""Largest exponent of a popularity; with more, one expert has all there is."""
MOST_LOAD = 1e4
"""Of ranks that hold all experts of a layer there are fewer."""
_LOAD = re.compile(r"load:(?P<fullest>\d{1,5}(\.\d{1,9})?)")
_ZIPF = re.compile(r"zipf:(?P<alpha>\d{1,3}(\.\d{1,9})?)")


def _line(counts: Sequence[float]) -> str:
    return " ".join(f"{int(one)}" if one.is_integer() else repr(one) for one in counts)


CountLine = Annotated[
    tuple[float, ...],
    BeforeValidator(lambda value: value.split() if isinstance(value, str) else value),
    PlainSerializer(_line, return_type=str),
    WithJsonSchema({"type": "string"}),
]
"""Counts of a layer, in documents one line: there are too many for a line each."""


class RoutingSpec(Spec):
    """Which experts the tokens of a micro batch choose."""

    FORMS: ClassVar = "balanced|random|zipf:ALPHA|load:FACTOR|FILE"
    """As `--option routing` takes it."""
    kind: Literal["balanced", "random", "zipf", "measured", "load"]
    """Equal rows for every expert; experts drawn at random, all equal; or with a popularity that
    falls as a power of their number; or as often as they were counted; or the rows of the fullest
    rank are stated."""
    alpha: float = Field(default=0.0, ge=0.0, le=STEEPEST)
    """`zipf`: the popularity of expert i falls as i ** -alpha."""
    fullest: float = Field(default=1.0, ge=1.0, le=MOST_LOAD)
    """`load`: rows of the fullest rank, and of the fullest node, over those of a balanced one."""
    tokens_per_expert: tuple[tuple[float, ...], ...] = ()
    """`measured`: rows of every expert, for each layer or for all of them, of all steps."""
    steps: tuple[tuple[CountLine, ...], ...] = ()
    """`measured`: the same of each step, if known: [step][layer], a line with one number an expert
    in documents."""
    source: str = ""
    """`measured`: the file they were read from."""

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        return _read(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _counts_are_counts(self) -> Self:
        if (self.kind == "measured") != bool(self.tokens_per_expert):
            raise ValueError(
                "counts of tokens per expert belong to routing=FILE, and it needs them"
            )
        for number, layers in enumerate((self.tokens_per_expert, *self.steps)):
            step = f"step {number}, " if number else ""
            for line, counts in enumerate(layers, start=1):
                if not counts or min(counts) < 0 or not 0 < sum(counts) < math.inf:
                    raise ValueError(
                        f"tokens per expert, {step}line {line}: counts must be 0 or more, and some "
                        "above 0"
                    )
        shapes = {tuple(map(len, layers)) for layers in (self.tokens_per_expert, *self.steps)}
        if self.steps and (
            len(shapes) > 1 or not np.allclose(np.sum(self.steps, axis=0), self.tokens_per_expert)
        ):
            raise ValueError(
                "tokens per expert: every step needs the same layers and experts, which add up to "
                "those of all steps"
            )
        return self

    @property
    def has_popular_experts(self) -> bool:
        """Is it known which experts have more rows than others, so that their place counts?"""
        return self.kind in ("zipf", "measured")

    @model_serializer(mode="wrap")
    def _as_text(self, handler: SerializerFunctionWrapHandler) -> object:
        return handler(self) if self.kind == "measured" else str(self)

    @staticmethod
    def is_named(text: str) -> bool:
        """Is it a routing by name, and no file?"""
        return text in ("balanced", "random") or text.startswith(("zipf", "load:"))

    def __str__(self) -> str:
        if self.kind == "zipf":
            return f"zipf:{self.alpha:g}"
        if self.kind == "load":
            return f"load:{self.fullest:g}"
        return self.source or "FILE" if self.kind == "measured" else self.kind


def _read(text: str) -> dict[str, object]:
    """`balanced`, `random`, `zipf:ALPHA` or `load:FACTOR`."""
    if text in ("balanced", "random"):
        return {"kind": text}
    if (match := _ZIPF.fullmatch(text)) and float(match["alpha"]) <= STEEPEST:
        return {"kind": "zipf", "alpha": float(match["alpha"])}
    if (match := _LOAD.fullmatch(text)) and 1 <= float(match["fullest"]) <= MOST_LOAD:
        return {"kind": "load", "fullest": float(match["fullest"])}
    raise ValueError(
        f"must be balanced, random, zipf:ALPHA with ALPHA from 0 to {STEEPEST:g}, load:FACTOR with "
        f"FACTOR from 1 to {MOST_LOAD:g}, or a file of tokens per expert"
    )
