"""Questions of people with a known answer: what they measured, and what fitted."""

import tomllib
from pathlib import Path

import pytest

from tests.e2e.command import plan
from trainplan.costmodel.base import GIB

FOLDER = Path(__file__).parent / "questions"
QUESTIONS = tomllib.loads((FOLDER / "questions.toml").read_text(encoding="utf-8"))["question"]


def words(command):
    """Arguments, files by their path."""
    return [str(FOLDER / word) if (FOLDER / word).is_file() else word for word in command.split()]


def measured(estimate, name):
    memory = estimate["memory"]
    gib = {
        "peak_gib": memory["peak_reserved_bytes"],
        "allocated_gib": memory["peak_allocated_bytes"],
        "host_gib": memory["host"]["host_bytes"],
    }
    return gib[name] / GIB if name in gib else estimate[name]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one["id"])
def test_the_answer_is_what_was_measured(question):
    right = dict(question["right"])
    found = plan("estimate", *words(question["command"]), "--json").json["estimate"]
    if "fits" in right:
        assert found["memory"]["fits"] == right.pop("fits")
    within = right.pop("within", None)
    for name, value in right.items():
        assert measured(found, name) == pytest.approx(value, rel=within), name


def test_a_configuration_that_is_tied_is_read_as_tied():
    model = plan("catalog", "models", FOLDER / "outer_tie.json", "--json").json
    assert model["tie_word_embeddings"]
    assert model["num_parameters"] == 11_427_516_416


def test_infinity_in_a_configuration_is_no_bug():
    assert plan("catalog", "models", FOLDER / "inf.json", "--json").code == 0
