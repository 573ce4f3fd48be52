"""All families of the tables, with the defaults of their configuration classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, cast

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model.families.by_fields import read
from trainplan.costmodel.model.families.family import Family
from trainplan.costmodel.model.families.hybrids import HYBRIDS
from trainplan.costmodel.model.families.layered import LAYERED
from trainplan.costmodel.model.families.mixtures import MIXTURES
from trainplan.costmodel.model.families.plain import PLAIN
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.sparse import SPARSE

TABLE: Final[Mapping[str, Family]] = {**PLAIN, **MIXTURES, **LAYERED, **HYBRIDS, **SPARSE}
"""`model_type` -> family. To add one, write its line in one of the tables."""
DEFAULTS: Final = "class_defaults.json"
"""What each configuration class says of a field its file leaves out, sizes apart.

Source: transformers 5.24, `configuration_*.py` of each `model_type`; held by
tests/oracles/test_decoder_counts.py, written by tests/oracles/record_class_defaults.py.
"""


@cache
def class_defaults() -> Mapping[str, Mapping[str, object]]:
    """Defaults of the configuration class of every `model_type` of the table."""
    text = files("trainplan.costmodel.model.families").joinpath(DEFAULTS).read_text("utf-8")
    return cast("dict[str, dict[str, object]]", json.loads(text))


def from_table(config: HfConfig) -> ModelSpec:
    """Read a file whose `model_type` is in the table."""
    family, name = TABLE[config.model_type], config.model_type
    defaults = {**class_defaults().get(name, {}), **family.defaults}
    return read(config.with_defaults(defaults), family)
