"""`--tower`: what of a model's tower the user states."""

from typing import Final, Literal

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec, TowerSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import first_complaint

FIELDS: Final = {
    "samples": "samples_per_sequence",
    "patches": "patches_per_sample",
    "frozen": "frozen",
}
"""Name in the option -> field of `TowerSpec`."""


def with_tower(model: ModelSpec, text: str | None) -> ModelSpec:
    """The model with its tower as stated, or without it.

    Raises:
        SpecError: It has no tower, or the text is wrong; the message lists what is allowed.
    """
    if text is None:
        return model
    if model.tower is None:
        raise SpecError(
            f"--tower {text[:60]!r}: {model.name} has no tower: leave the option out, or give a "
            "model with a vision or audio tower"
        )
    if text == "none":
        return model.model_copy(update={"tower": None})
    stated = _parsed(text)
    if "patches_per_sample" in stated:
        stated["patches_assumed"] = False
    try:
        tower = TowerSpec.model_validate(model.tower.model_dump() | stated)
    except ValidationError as error:
        raise SpecError(f"--tower {text!r}: {first_complaint(error).reason}") from None
    return model.model_copy(update={"tower": tower})


def _parsed(text: str) -> dict[str, object]:
    stated: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in FIELDS:
            known = ", ".join(f"{one}=VALUE" for one in FIELDS)
            raise SpecError(f"--tower {part[:60]!r}: write none, or some of {known}")
        if FIELDS[name] in stated:
            raise SpecError(f"--tower: {name} is given twice: give it once")
        stated[FIELDS[name]] = value
    return stated


Place = Literal["unified", "apart"]
PLACES: Final[dict[str, Place]] = {"unified": "unified", "apart": "apart"}
HELD: Final = "tower="


def place_of(fix: tuple[str, ...]) -> tuple[Place, tuple[str, ...]]:
    """Where `--fix tower=` puts the tower, and all other fields that are held.

    Raises:
        SpecError: Neither unified nor apart, or both.
    """
    places = [text.removeprefix(HELD) for text in fix if text.startswith(HELD)]
    if len(places) > 1:
        raise SpecError("--fix tower is given twice: give it once")
    if places and places[0] not in PLACES:
        raise SpecError(f"--fix {HELD}{places[0][:40]}: choose unified or apart")
    rest = tuple(text for text in fix if not text.startswith(HELD))
    return PLACES[places[0]] if places else "unified", rest
