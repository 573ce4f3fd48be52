"""`--train`: what of a model is trained."""

import re

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import first_complaint

WAYS = "full, lora:rank=16,modules=all, qlora:rank=16, frozen:layers=0-20 or frozen:tower"
FROZEN_TOWER, ALL_FROZEN = "frozen:tower", {"frozen": "all"}
NAMES = {"lora": ("rank", "modules"), "qlora": ("rank", "modules"), "frozen": ("layers",)}
LAYERS = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


def with_trained(model: ModelSpec, text: str | None) -> ModelSpec:
    """The model with what `--train` trains; null: as the model states.

    Raises:
        SpecError: The text is none of the ways, or names what the model does not have.
    """
    if text is None:
        return model
    if text == FROZEN_TOWER and model.tower:
        return model.model_copy(update={"tower": model.tower.model_copy(update=ALL_FROZEN)})
    try:
        fields = model.model_dump() | {"trained": parse_trained(model, text)}
        return ModelSpec.model_validate(fields)
    except ValidationError as error:
        reason = first_complaint(error).reason.removeprefix("trained: ")
        raise SpecError(f"--train {text}: {reason}") from None


def parse_trained(model: ModelSpec, text: str) -> dict[str, object] | None:
    """Fields of `Trained`; null: every weight.

    Raises:
        SpecError: As `with_trained`.
    """
    method, _, rest = text.partition(":")
    if method == "full" and not rest:
        return None
    if method not in NAMES:
        raise SpecError(f"--train {text!r}: write {WAYS}")
    if text == FROZEN_TOWER:
        raise SpecError(f"--train frozen:tower: {model.name} has no tower; freeze layers instead")
    values = _values(text, method, rest)
    if method == "frozen":
        return {"method": method, "layers": _layers(text, values)}
    rank = values.get("rank", "")
    if not rank.isdecimal():
        raise SpecError(f"--train {text}: rank is a number, such as {method}:rank=16")
    modules = tuple(values.get("modules", "all").split(","))
    return {"method": method, "rank": int(rank), "modules": modules}


def _values(text: str, method: str, rest: str) -> dict[str, str]:
    """NAME=VALUE, with commas; a word without a name goes on with the value before it."""
    values: dict[str, str] = {}
    last = ""
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        if not equals and last == "modules":
            values[last] += f",{part}"
        elif name not in NAMES[method] or name in values or not value:
            known = " and ".join(NAMES[method])
            raise SpecError(f"--train {text}: {part!r}: {method} takes {known}, each once")
        else:
            values[name], last = value, name
    return values


def _layers(text: str, values: dict[str, str]) -> tuple[int, int]:
    found = LAYERS.fullmatch(values.get("layers", ""))
    if found is None:
        raise SpecError(f"--train {text}: write the first and last layer, as frozen:layers=0-20")
    return int(found[1]), int(found[2] or found[1])
