"""`plan search --objective context` as users type it."""

import json

import pytest

from tests.e2e.command import TINY, plan, refused, with_value

SHORT = tuple(word for word in TINY if word not in ("--seq-length", "1024"))
LONG = (
    *("search", "--model", "llama3.1-8b", "--cluster", "1x8:h100-sxm", "--runtime", "deepspeed"),
    *("--objective", "context", "--global-batch-size", "1", "--fix", "pp=1", "--fix", "tp=1"),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("long") / "plan.json"


@pytest.fixture(scope="module")
def outcome(path):
    """Of the search, which writes its plan, too."""
    found = plan(*LONG, "--output", path)
    assert found.code == 0
    return found


def test_the_longest_sequence_of_llama_8b_on_eight_h100(outcome, path):
    lines = outcome.out.splitlines()
    assert max(len(line) for line in lines) <= 100
    assert any("tokens is the longest sequence that trains" in line for line in lines)
    assert any("stopped by: GPU memory" in line for line in lines)
    assert "+ tiled MLPs" in outcome.out
    explained = plan("explain", path, "--time-limit", "0.1")
    assert explained.code == 0


@pytest.mark.usefixtures("outcome")
def test_its_document_has_the_tokens_and_the_ladder(path):
    document = json.loads(path.read_text())
    objective = document["certificate"]["objective"]
    assert 3_200_000 <= objective["value"] <= 4_200_000
    assert objective["value"] == document["training"]["seq_length"]
    assert (objective["name"], objective["unit"]) == ("context", "tokens")
    assert objective["limit"] == "GPU memory"
    assert [rung["tokens"] for rung in objective["ladder"]][-1] == objective["value"]
    assert set(objective["ladder"][0]) == {"adds", "tokens", "limit", "global_batch_size"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("search", *SHORT), ["--seq-length"]),
        (("search", *SHORT, "--objective", "memory"), ["--seq-length"]),
        (("search", *TINY, "--pareto", "context,time"), ["--pareto", "give two of"]),
        (
            ("search", *TINY, "--objective", "context", "--lengths", "lognormal:512,0.5"),
            ["leave out --lengths"],
        ),
    ],
)
def test_what_means_nothing_is_refused(arguments, words):
    refused(plan(*arguments), *words)


def test_a_length_that_is_given_is_where_the_search_begins():
    one, held = ("--cluster", "1x1:h100-sxm"), ("--objective", "context", "--fix", "offload=0")
    short, given = (
        plan("search", *words, *held, "--json").json["certificate"]["objective"]
        for words in (with_value(SHORT, *one), with_value(TINY, *one))
    )
    assert given["value"] == pytest.approx(short["value"], rel=1 / 64)
