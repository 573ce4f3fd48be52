"""Values that a spec refuses are refused in words of ours, with their place."""

import json
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from tests.e2e.command import TINY, plan, refused, with_value
from trainplan.cli.files.disk import FileError
from trainplan.cli.files.documents import read_document
from trainplan.cli.files.runs import read_runs
from trainplan.costmodel.hardware.cluster import ClusterSpec
from trainplan.costmodel.spec.base import Spec
from trainplan.costmodel.spec.validation_errors import Complaint, complaints, first_complaint

CLUSTER = {
    "groups": [
        {
            "gpu": "h100-sxm",
            "num_nodes": 1,
            "gpus_per_node": 8,
            "nic": {"per_node": 8, "gb_per_s": 50},
            "memory_gib": 79.6,
            "price_per_gpu_hour": 2.5,
        }
    ],
    "fabric": [{"reach_gpus": 64, "oversubscription": 1.0}],
}
THEIRS = re.compile("[Ii]nput|should|valid|Extra|Field|Value error|NoneType|object has")
"""Words of pydantic and of Python."""


class Inner(Spec):
    kind: Literal["inner"] = "inner"
    size: PositiveInt = 1


class Other(Spec):
    kind: Literal["other"] = "other"


class Outer(Spec):
    count: Annotated[PositiveInt, Field(le=8)] = 1
    share: Annotated[PositiveFloat, Field(lt=1)] = 0.5
    least: Annotated[float, Field(ge=0)] = 0.0
    name: Annotated[str, Field(pattern="^[a-z]+$", max_length=3)] = "a"
    on: bool = True
    colour: Literal["red", "blue"] = "red"
    sizes: Annotated[tuple[int, ...], Field(min_length=1, max_length=2)] = (1,)
    inner: Inner = Inner()
    either: Annotated[Inner | Other, Field(discriminator="kind")] = Inner()

    @model_validator(mode="after")
    def _fits(self) -> "Outer":
        if self.count == 7:
            raise ValueError("count 7, of all, is refused: take 8")
        return self


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"count": "x"}, "count: must be a whole number, got 'x'"),
        ({"count": 1.5}, "count: must be a whole number, got 1.5"),
        ({"count": 0}, "count: must be above 0, got 0"),
        ({"count": 9}, "count: must be at most 8, got 9"),
        ({"count": 7}, "count 7, of all, is refused: take 8"),
        ({"share": 1}, "share: must be below 1.0, got 1"),
        ({"share": []}, "share: must be a number, got an empty list"),
        ({"share": float("nan")}, "share: must be a finite number, got nan"),
        ({"least": -1}, "least: must be at least 0.0, got -1"),
        ({"name": 5}, "name: must be text, got 5"),
        ({"name": "A"}, "name: must be of the form ^[a-z]+$, got 'A'"),
        ({"name": "abcd"}, "name: must be at most 3 characters long, got 'abcd'"),
        ({"on": "perhaps"}, "on: must be true or false, got 'perhaps'"),
        ({"colour": "green"}, "colour: must be one of 'red' or 'blue', got 'green'"),
        ({"sizes": 5}, "sizes: must be a list, got 5"),
        ({"sizes": []}, "sizes: must be a list of at least 1, got an empty list"),
        ({"sizes": [1, 2, 3]}, "sizes: must be a list of at most 2, got a list"),
        ({"sizes": [1, None]}, "sizes.1: must be a whole number, got null"),
        ({"inner": 3}, "inner: must be fields and values, got 3"),
        ({"inner": {"sise": 1}}, "inner.sise: unknown field; remove it or correct its name"),
        ({"either": {"kind": "x"}}, "either: must be of a known kind ('inner', 'other'), got"),
        ({"either": {}}, "either: must be fields and values with 'kind', got an empty object"),
    ],
)
def test_a_wrong_value_is_told_with_its_place_and_what_would_be_right(values, text):
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(values)
    assert first_complaint(caught.value).text.startswith(text)
    assert not THEIRS.search(first_complaint(caught.value).reason)


def test_every_wrong_value_is_told():
    with pytest.raises(ValidationError) as caught:
        ClusterSpec.model_validate({"groups": [{"num_nodes": -1}]})
    found = complaints(caught.value)
    assert Complaint(("groups", 0, "gpu"), "is missing: add it") in found
    assert Complaint(("groups", 0, "num_nodes"), "must be above 0, got -1") in found


def places(values: object, at: tuple[str | int, ...] = ()):
    """Every place in nested values."""
    yield at
    pairs = values.items() if isinstance(values, dict) else enumerate(values)
    for name, part in pairs if isinstance(values, dict | list) else ():
        yield from places(part, (*at, name)) if isinstance(part, dict | list) else [(*at, name)]


def changed(values, at, value):
    """The values with another one at a place."""
    if not at:
        return value
    copy = json.loads(json.dumps(values))
    part = copy
    for name in at[:-1]:
        part = part[name]
    part[at[-1]] = value
    return copy


@pytest.mark.parametrize("value", ["x", -1, [], {"a": 1}, float("nan"), 10**30, 1e300, None, True])
def test_whatever_is_wrong_in_a_file_is_refused_with_file_line_and_field(tmp_path: Path, value):
    path, wrong = tmp_path / "cluster.yaml", 0
    for at in places(CLUSTER):
        path.write_text(yaml.safe_dump(changed(CLUSTER, at, value)))
        try:
            read_document(path).validated(ClusterSpec)
        except FileError as error:
            wrong += 1
            assert str(error).startswith(str(path))
            assert not at or str(at[0]) in str(error)
            assert not THEIRS.search(str(error).removeprefix(str(path)))
    assert wrong >= 1


def test_a_number_that_is_no_quantity_is_refused_where_it_stands(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(changed(CLUSTER, ("groups", 0, "nic", "gb_per_s"), 10**40)))
    line = path.read_text().splitlines().index(f"    gb_per_s: {10**40}") + 1
    outcome = plan("search", *with_value(TINY, "--cluster", str(path)))
    refused(outcome, f"{path}:{line}: field 'groups.0.nic.gb_per_s': too large a number")


def test_no_duration_of_a_pass_is_no_bug(tmp_path: Path):
    path = tmp_path / "times.yaml"
    path.write_text("{forward: [], input_grad: [], weight_grad: []}")
    pipeline = ("--kind", "1f1b", "--pp", "2", "--num-microbatches", "4")
    outcome = plan("schedule", *pipeline, "--stage-times", path)
    refused(outcome, f"{path}:1: field 'forward': must be a list of at least 1")


def test_an_option_that_is_no_number_is_told_so():
    outcome = plan("search", *with_value(TINY, "--seq-length", "8q"))
    assert "'8q'" in refused(outcome)


@pytest.mark.parametrize("depth", [100, 400, 5_000, 100_000])
@pytest.mark.parametrize("name", ["deep.json", "deep.yaml", "runs.jsonl"])
def test_what_is_nested_too_deeply_is_refused_in_a_line(tmp_path, name, depth):
    for start, end in (("[", "]"), ('{"a": ', "}")):
        path = tmp_path / name
        path.write_text('{"gpu": ' + start * depth + "1" + end * depth + "}\n")
        read = read_runs if name == "runs.jsonl" else read_document
        with pytest.raises(FileError, match="nested too deeply") as error:
            read(path)
        assert "\n" not in str(error.value)


def test_nested_as_documents_are_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"gpu": ' + "[" * 60 + "]" * 60 + "}")
    found, depth = read_document(path).values["gpu"], 1
    while found:
        (found,), depth = found, depth + 1
    assert depth == 60
