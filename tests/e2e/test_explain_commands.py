"""`plan explain`, `why-not`, `compare`, `sweep`: answers, widths, JSON, refusals."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TINY, Outcome, plan, refused, with_value
from tests.e2e.test_commands import assert_frozen, keys

KEYS = Path(__file__).parent / "explain_keys.json"
PLANNED = ("--top", "3", "--output")
HELD = ("--fix", "pp=1", "--fix", "cp=1", "--fix", "recompute=none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def plan_file(folder: Path) -> Path:
    path = folder / "plan.json"
    assert plan("search", *TINY, *HELD, *PLANNED, path).code == 0
    return path


@pytest.fixture(scope="module")
def other_file(folder: Path) -> Path:
    path = folder / "other.json"
    job = with_value(TINY, "--global-batch-size", "16")
    assert plan("search", *job, *HELD, "--fix", "tp=2", *PLANNED, path).code == 0
    return path


@pytest.fixture(scope="module")
def tight_file(folder: Path) -> Path:
    """A plan that may use 2.4 GiB of a GPU."""
    path = folder / "tight.json"
    assert plan("search", *TINY, "--memory-margin", "0.97", *PLANNED, path).code == 0
    return path


@pytest.fixture(scope="module")
def wanted(plan_file: Path, other_file: Path, tight_file: Path) -> list[tuple[str | Path, ...]]:
    """One question of every kind."""
    return questions(plan_file, other_file, tight_file)


EXPLAINED, TOO_LARGE = 0, 5
"""Places among the questions."""


def questions(plan_file: Path, other_file: Path, tight_file: Path) -> list[tuple[str | Path, ...]]:
    return [
        ("explain", other_file),
        ("why-not", plan_file, "--layout", "tp=2"),
        ("why-not", plan_file, "--layout", "tp=3,dp=2"),
        ("why-not", plan_file, "--layout", "micro_batch_size=3"),
        ("why-not", other_file, "--layout", "tp=1,dp=8"),
        ("why-not", tight_file, "--layout", "tp=1,dp=8,zero_stage=0"),
        ("compare", plan_file, other_file),
        ("compare", plan_file, plan_file),
        ("sweep", plan_file, "--vary", "gpus=1,2,4,8"),
        ("sweep", plan_file, "--vary", "memory_gib=0.1,80", "--vary", "gpus=3,8", "--weak"),
    ]


@pytest.fixture(scope="module")
def documents(wanted) -> list[dict[str, object]]:
    """What every question is answered as JSON."""
    return [plan(*question, "--json").json for question in wanted]


@pytest.fixture(scope="module")
def outcomes(wanted) -> list[Outcome]:
    """What every question is answered as text."""
    return [plan(*question) for question in wanted]


def test_answers_are_narrow_and_their_documents_agree_with_them(wanted, documents, outcomes):
    for question, found, outcome in zip(wanted, documents, outcomes, strict=True):
        assert (outcome.code, outcome.err) == (0, ""), question
        assert max(len(line) for line in outcome.out.splitlines()) <= 100, question
        assert found["schema"] == f"trainplan/{question[0]}/v1"
        written = found["text"] if question[0] == "why-not" else found["verdict"]
        assert " ".join(outcome.out.split()).startswith(" ".join(written.split()))


def test_an_explanation_starts_with_what_limits_the_plan(other_file, documents, outcomes):
    assert outcomes[EXPLAINED].out.startswith("Kernel launches limit this plan: ")
    found = documents[EXPLAINED]
    best = json.loads(other_file.read_text())["best"]
    assert found["layout"] == best["layout"]
    assert found["estimate"]["step_time_s"] == best["estimate"]["step_time_s"]
    shares = sum(resource["time_s"] for resource in found["resources"])
    assert shares == pytest.approx(best["estimate"]["step_time_s"])


def test_a_layout_too_large_is_told_how_much_and_what_would_fit(documents, outcomes):
    text = outcomes[TOO_LARGE].out
    assert " ".join(text.split()).startswith(
        "The smallest layout with tp=1, dp=8, zero_stage=0 does not fit: pipeline rank 0 needs "
    )
    assert "without the memory margin it fits" in " ".join(text.split())
    assert "It runs with" in text
    found = documents[TOO_LARGE]
    over = found["overflows"][0]
    assert over["total_bytes"] - over["over_bytes"] == pytest.approx(found["usable_bytes"])
    assert all(r["peak_reserved_bytes"] <= found["usable_bytes"] for r in found["remedies"])


def test_a_time_limit_leaves_changes_untried_and_says_so(plan_file: Path):
    outcome = plan("explain", plan_file, "--time-limit", "1e-9")
    assert outcome.code == 0
    assert "untried: time limit" in outcome.out
    sweep = plan("sweep", plan_file, "--vary", "gpus=4,8", "--time-limit", "1e-9")
    assert sweep.out.startswith("No point has a plan.")


def test_choices_of_the_search_hold_in_its_explanation(documents):
    replanned = [price["replanned"] for price in documents[EXPLAINED]["shadow_prices"]]
    assert {effect["layout"]["tp"] for effect in replanned if effect} == {2}


def test_bad_questions_are_refused_in_a_line(plan_file: Path, tmp_path: Path):
    empty = tmp_path / "empty.json"
    empty.write_text("{}")
    for name in ("explain", "compare", "sweep", "why-not"):
        more = {
            "compare": (empty,),
            "sweep": ("--vary", "gpus=1,2"),
            "why-not": ("--layout", "tp=1"),
        }
        refused(plan(name, empty, *more.get(name, ())), str(empty))
    refused(plan("sweep", plan_file, "--vary", "wings=1,2"), "wings", "gpus")
    refused(plan("sweep", plan_file, "--vary", "gpus=8..1"), "larger")
    refused(plan("why-not", plan_file, "--layout", "tp=x"), "whole number")
    line = refused(plan("why-not", plan_file, "moe_dispatcher=alltoall"))
    assert "moe_dispatcher is a setting of the runtime, not a field of a layout" in line
    assert "`--option moe_dispatcher=alltoall`" in line


def test_a_plan_of_another_version_is_remarked_on(plan_file: Path, tmp_path: Path):
    document = json.loads(plan_file.read_text())
    document["best"]["estimate"]["step_time_s"] *= 2
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    for question in (("explain", path, "--time-limit", "0.01"), ("compare", path, path)):
        assert "give the --profile it was made with" in plan(*question).err


def test_evidence_that_is_no_evidence_is_refused(plan_file: Path, tmp_path: Path):
    document = json.loads(plan_file.read_text())
    document["provenance"]["memory_margin"] = "a lot"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    refused(plan("explain", path), "provenance.memory_margin")


def test_the_keys_of_the_documents_are_frozen(wanted, documents):
    """Public: a key is never renamed or removed within a schema version."""
    found: dict[str, set[str]] = {}
    for question, document in zip(wanted, documents, strict=True):
        found.setdefault(str(question[0]), set()).update(keys(document))
    assert_frozen(found, KEYS)


@pytest.fixture(scope="module")
def packed_file(folder: Path) -> Path:
    """A plan for sequences of unequal length, packed."""
    path, lengths = folder / "packed.json", folder / "lengths.csv"
    lengths.write_text("length,count\n64,30\n1024,2\n")
    packed = ("--lengths", lengths, "--packing", "greedy")
    assert plan("search", *TINY, *packed, *HELD, *PLANNED, path).code == 0
    return path


def test_a_plan_for_unequal_lengths_keeps_them_and_is_explained(packed_file: Path):
    training = json.loads(packed_file.read_text())["training"]
    assert training["packing"] == "greedy"
    assert training["lengths"]["counts"] == [[64, 30.0], [1024, 2.0]]
    written = plan("explain", packed_file, "--time-limit", "0.3")
    assert written.code == 0
    assert "of a row is padding" in written.out
    assert "--packing balanced" in written.out
    found = plan("explain", packed_file, "--time-limit", "0.01", "--json").json["lengths"]
    assert found["attention_wait"] >= 1
    assert sum(one["tokens_fraction"] for one in found["degrees"]) == pytest.approx(1)


def test_a_plan_written_before_lengths_were_known_still_loads(plan_file: Path, folder: Path):
    document = json.loads(plan_file.read_text())
    assert document["training"].pop("lengths") is None
    assert document["training"].pop("packing") == "none"
    older = folder / "older.json"
    older.write_text(json.dumps(document))
    assert plan("compare", plan_file, older).code == 0


def test_a_placement_of_experts_is_written_or_refused_by_what_is_missing(folder, plan_file):
    counts, path, made = folder / "counts.csv", folder / "experts.json", folder / "placement.csv"
    counts.write_text(",".join(str(200 - one) for one in range(128)) + "\n")
    fixed = ("ep=8", "tp=1", "pp=1", "cp=1", "micro_batch_size=1", "recompute=full", "zero_stage=1")
    job = ("--model", "qwen3-30b-a3b", "--cluster", "1x8:h100-sxm", "--global-batch-size", "64")
    held = [word for one in fixed for word in ("--fix", one)]
    routed = ("--seq-length", "4096", "--option", f"routing={counts}")
    assert plan("search", *job, *routed, *held, *PLANNED, path).code == 0
    found = plan("explain", path, "--time-limit", "0.1", "--placement", made, "--json")
    assert found.json["placement"]["ranks"] == 8
    head, line = made.read_text().splitlines()
    assert head.count("rank7") == 16
    assert sorted(line.split(",")[1:], key=int) == list(map(str, range(128)))
    refused(plan("explain", path, "--placement", made), "exists")
    none = plan("explain", plan_file, "--placement", folder / "none.csv")
    refused(none, "the plan does not know which experts are popular, or has them on one rank")
