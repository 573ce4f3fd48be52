"""Files of plug-ins that add to the catalog; each number's source names its plug-in."""

import importlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.plugins import Installed
from trainplan.costmodel.spec import Spec, first_complaint

Model = TypeVar("Model", bound=Spec)
SOURCES = ("source", "_source")
"""Keys whose text states where numbers are from."""


def alongside(one: Installed, name: str) -> Path:
    """A file or folder next to the module of a plug-in."""
    module = importlib.import_module(one.module)
    return Path(str(module.__file__)).parent / name


def table(one: Installed, file: str) -> Mapping[str, Any]:
    """A TOML file of a plug-in; nothing where it names none."""
    return tomllib.loads(alongside(one, file).read_text(encoding="utf-8")) if file else {}


def entry(kind: type[Model], one: Installed, values: object) -> Model:
    """An entry of such a file.

    Raises:
        SpecError: A value is missing or wrong.
    """
    try:
        return kind.model_validate(marked(values, one.who))
    except ValidationError as error:
        raise SpecError(first_complaint(error).text) from None


def marked(values: object, who: str) -> object:
    """The values of a file, with the plug-in behind every source."""
    if not isinstance(values, Mapping):
        return values
    return {
        name: f"{one} ({who})" if name in SOURCES and isinstance(one, str) else marked(one, who)
        for name, one in values.items()
    }
