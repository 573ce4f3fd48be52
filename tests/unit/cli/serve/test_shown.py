"""An answer within bounds says what is missing."""

import json

import pytest

from trainplan.cli.serve.shown import shown
from trainplan.costmodel.base.errors import SpecError

DOCUMENT = {
    "schema": "x/v1",
    "best": {"layout": {"tp": 8}, "step_time_s": 1.5},
    "candidates": [{"rank": rank, "text": "x" * 100} for rank in range(50)],
    "refused": {f"rule-{number}": number for number in range(30)},
}


def size(document):
    return len(json.dumps(document, ensure_ascii=False).encode())


def test_what_fits_is_whole():
    found = shown(DOCUMENT, None, size(DOCUMENT))
    assert found.document == DOCUMENT
    assert not found.notes


@pytest.mark.parametrize("most", [200, 500, 1000, 3000, 6000])
def test_the_longest_list_is_shortened_first_and_the_rest_stays(most):
    found = shown(DOCUMENT, None, most)
    assert size(found.document) <= most
    kept = found.document.get("candidates", [])
    assert kept == DOCUMENT["candidates"][: len(kept)]
    assert any(note.startswith("candidates: ") for note in found.notes)
    if most >= 1000:
        assert found.document["best"] == DOCUMENT["best"]
        assert found.notes == (f"candidates: {len(kept)} of 50 entries",)


def test_what_has_no_entries_is_left_out_whole():
    found = shown({"text": "x" * 1000, "short": 1}, None, 100)
    assert found.document == {"short": 1}
    assert found.notes == ("text: left out, 1,002 bytes",)


def test_a_mapping_of_few_keys_is_shortened_inside():
    """The plans of a replan are not left out for their alternatives."""
    plan = {"layout": {"tp": 8}, "candidates": DOCUMENT["candidates"]}
    document = {"schema": "x/v1", "best": {"plan": plan, "rate": 0.9}, "after": {"plan": plan}}
    found = shown(document, None, 4000)
    assert size(found.document) <= 4000
    assert found.document["best"]["plan"]["layout"] == {"tp": 8}
    assert found.document["best"]["rate"] == 0.9
    assert all(".plan.candidates: " in note for note in found.notes)
    assert found.notes


def test_parts_are_given_alone():
    assert shown(DOCUMENT, ["best.layout", "refused"], 10_000).document == {
        "schema": "x/v1",
        "best.layout": {"tp": 8},
        "refused": DOCUMENT["refused"],
    }


@pytest.mark.parametrize("part", ["worst", "best.colour", "candidates.rank", ""])
def test_a_part_that_is_not_there_is_named_with_those_that_are(part):
    with pytest.raises(SpecError, match="is no key of the answer: known: "):
        shown(DOCUMENT, [part], 10_000)
