"""The page on model types: which are read by name, which by their fields, which are refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from page_parts import Lines, table

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.families.reading import read_config
from trainplan.costmodel.families.registry import READ_BY_NAME, SAME
from trainplan.costmodel.model.params import num_parameters

RECORDED: Final = Path(__file__).parents[2] / "tests" / "golden" / "decoder_counts.json"
NAME, FIELDS, REFUSED = "by name", "by its fields", "refused"


class Verdict(NamedTuple):
    """What becomes of one class of transformers."""

    read: str
    remark: str


def model_types_page() -> Lines:
    """Every decoder class of transformers, and what else is known by name."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    verdicts = {name: _verdict(name, variants) for name, variants in recorded["types"].items()}
    counts = Counter(verdict.read for verdict in verdicts.values())
    yield from ("# Model types", "")
    yield f"What becomes of a `config.json` of each decoder-only class of {recorded['source']}: of"
    yield f"{len(verdicts)} classes {counts[NAME]} are read by name, {counts[FIELDS]} by their"
    yield f"fields, {counts[REFUSED]} are refused. Those that are read have to the digit as many"
    yield "parameters as the class, in two configurations each: small sizes, then every switch"
    yield "turned. Biases that balance experts are counted, though the class keeps them as buffers:"
    yield "published files hold them. A `model_type` that is not here is read by its fields, as a"
    yield "Llama is built where they say nothing, and refused by the first field that is not"
    yield "understood."
    yield ""
    rows = ((f"`{name}`", *verdict) for name, verdict in verdicts.items())
    yield from table(("model_type", "read", "remark"), rows)
    yield ""
    others = sorted(READ_BY_NAME - set(verdicts) - set(SAME))
    yield f"Read by name too: {', '.join(f'`{name}`' for name in others)}; and as another type:"
    yield ", ".join(f"`{name}` as `{other}`" for name, other in SAME.items()) + "."


def _verdict(name: str, variants: Mapping[str, Mapping[str, object]]) -> Verdict:
    """How the small configuration is read, and which switches are not modelled."""
    try:
        reading = _reading(name, variants["small"])
    except PlanError as error:
        return Verdict(REFUSED, _plain(str(error)))
    remarks = list(reading)
    try:
        _reading(name, variants["turned"])
    except PlanError as error:
        remarks.append(f"with every switch turned: {_plain(str(error))}")
    return Verdict(NAME if name in READ_BY_NAME else FIELDS, "; ".join(remarks))


def _reading(name: str, one: Mapping[str, object]) -> Sequence[str]:
    """Notes of a configuration that is read, whose count must be that of the class."""
    config = one["config"]
    assert isinstance(config, dict)
    reading = read_config(config, name)
    assert num_parameters(reading.model) == one["parameters"], name
    return [note for note in reading.notes if "no file of its own" not in note]


def _plain(message: str) -> str:
    """The message without the name of the file."""
    return message.partition(": ")[2] if message.startswith("config.json of") else message
