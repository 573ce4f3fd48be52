"""Files of any format with any values: never an exception, and no launch that only we refuse."""

import json
from functools import partial
from random import Random

import pytest
import yaml

from tests.grids import number
from trainplan.cli.values.launches import read_launches, text_next_to
from trainplan.costmodel.base.errors import PlanError
from trainplan.planner.formats import FORMATS
from trainplan.planner.runtimes import Request, readers

OURS = {"accelerate", "deepspeed", "torchtitan", "arctic_training"}
"""Formats whose runtime says itself what stops it."""
VALUES = (0, 1, -3, 10**12, 0.5, True, None, "", "x", "auto", "4096", "meta-llama/Llama-3.1-8B",
          [], [1, "2"], {}, {"a": {"b": 1}}, "a/b.yaml", "${x}", "../../etc")  # fmt: skip
MORE = ("model", "training", "parallel", "trainer", "batch_size", "tensor_model_parallel_size",
        "num_layers", "sequence_length", "lora_r", "deepspeed", "fsdp_config")  # fmt: skip


def put(document, key, value):
    """A key with its sections; a star is any name."""
    *sections, last = (part.replace("*", "any") for part in key.split("."))
    for part in sections:
        inner = document.get(part)
        document[part] = document = inner if isinstance(inner, dict) else {}
    document.setdefault(last, value)


def documents(name, random):
    for own in FORMATS[name].own:
        document = {}
        for key in (*own, *random.sample(MORE, 4)):
            put(document, key.partition("=")[0], random.choice(VALUES))
        yield document


def check(path):
    """Read as `plan check` does, without a price; one that has no launch is refused by name."""
    request = Request(text_of=partial(text_next_to, path.parent))
    try:
        [launch, *_] = read_launches([str(path)], {})
        reader = next((one for one in readers() if one.recognises(launch)), None)
        reading = reader and reader.read(launch, request)
    except PlanError as error:
        assert str(error).isprintable()
        return
    if reading is not None:
        assert reading.legal is not False or launch.format in OURS, reading.problems
        assert all(one.says.isprintable() for one in reading.problems)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_another_program_is_never_called_illegal(name, tmp_path):
    random = Random(name)
    for document in (one for _ in range(number(1, by_night=3)) for one in documents(name, random)):
        for ending, text in ((".json", json.dumps(document)), (".yaml", yaml.safe_dump(document))):
            path = tmp_path / f"a{ending}"
            path.write_text(text)
            check(path)
