"""Which optimizer updates the weights: a name with its settings, as `--optimizer` takes it."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, PositiveInt, ValidationError, WithJsonSchema

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import Spec, first_complaint

UpdateMoment = Literal["layer", "step"]


class OptimizerSpec(Spec):
    """An optimizer of `costmodel.optimizers`, with what the user set of it."""

    SETTINGS: ClassVar = ("rank", "update")
    """What may follow the name, in this order."""
    name: str = "adamw"
    rank: PositiveInt | None = None
    """Of the space that gradients are projected to; for the low-rank ones alone."""
    update: UpdateMoment | None = None
    """Weights are updated as soon as their gradient is there, layer by layer, or once a step; null:
    by layer on one GPU where the optimizer can, else once a step."""

    @property
    def text(self) -> str:
        """As `--optimizer` takes it: `galore:rank=1024`."""
        stated = {name: getattr(self, name) for name in self.SETTINGS}
        settings = ",".join(f"{name}={one}" for name, one in stated.items() if one is not None)
        return f"{self.name}:{settings}" if settings else self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name with its settings.

        Raises:
            SpecError: A setting is unknown, given twice, or its value is none.
        """
        name, colon, rest = text.partition(":")
        values: dict[str, str] = {}
        for part in rest.split(",") if colon else ():
            key, equals, value = part.partition("=")
            if not equals or key not in cls.SETTINGS or key in values:
                raise SpecError(
                    f"optimizer {text!r}: after {name}: come {' and '.join(cls.SETTINGS)}, "
                    f"each once, such as {name}:rank=256; {part!r} is none"
                )
            values[key] = value
        try:
            return cls.model_validate({"name": name, **values})
        except ValidationError as error:
            first = first_complaint(error)
            raise SpecError(f"optimizer {text!r}: {first.place[0]}: {first.reason}") from None


def _read(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return OptimizerSpec.parse(value)
    except SpecError as error:
        raise ValueError(str(error)) from None


OptimizerText = Annotated[
    OptimizerSpec,
    BeforeValidator(_read),
    PlainSerializer(lambda value: value.text, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["adamw", "galore:rank=1024"]}),
]
"""In a document it is one word."""
