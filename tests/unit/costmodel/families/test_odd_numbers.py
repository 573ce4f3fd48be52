"""A number that JSON has not, anywhere in a configuration, is refused or written by its name."""

import json
import math

import pytest

from tests.golden.composites import recorded
from tests.grids import some_cases
from trainplan.cli.pages.catalog import reading_entry
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.families.reading import read_config

RECORDED = recorded()


ODD = (math.inf, -math.inf, math.nan)


def with_each_leaf(values):
    """The configuration with one scalar, or a first item of a list, changed, each to the next."""
    for place, (name, value) in enumerate(values.items()):
        odd = ODD[place % len(ODD)]
        if isinstance(value, dict):
            yield from ({**values, name: one} for one in with_each_leaf(value))
        elif isinstance(value, list) and value:
            yield {**values, name: [odd, *value[1:]]}
        elif name != "model_type":
            yield {**values, name: odd}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_an_odd_number_is_no_bug(name):
    for config in some_cases(with_each_leaf(RECORDED[name]["config"]), 25):
        try:
            entry = reading_entry(read_config(config, name))
        except PlanError:
            continue
        json.dumps(entry, allow_nan=False)


def test_a_bound_without_an_end_is_written_by_its_name():
    config = {**RECORDED["nemotron_h_omni"]["config"], "bound": [0.0, math.inf]}
    config["text_config"] = {**config["text_config"], "time_step_limit": [0.0, math.inf]}
    entry = reading_entry(read_config(config, "x"))
    assert entry["read"]["text_config"]["time_step_limit"] == [0.0, "Infinity"]
