"""`plan schedule`: answers and JSON keys."""

import json
import sys
from pathlib import Path

import pytest

from tests.e2e.command import Outcome, plan, refused

SIZES = ("--pp", "4", "--num-microbatches", "8")
UNEVEN = ("--forward", "3", "--input-grad", "4", "--weight-grad", "2")
KEYS = [
    "makespan",
    "max_stage_span",
    "bubble_fraction",
    "lower_bound",
    "gap_fraction",
    "optimal",
    "peak_activations",
    "peak_activations_released_at_input_grad",
    "kind",
    "pp",
    "vpp",
    "num_microbatches",
    "placement",
    "runs_on",
]


def schedule(*arguments: str | Path) -> Outcome:
    return plan("schedule", *arguments)


def test_the_answer_comes_first():
    outcome = schedule("--kind", "zb-h1", *SIZES, *UNEVEN)
    assert outcome.code == 0
    first, *rest = outcome.out.splitlines()
    assert first == "zb-h1 · makespan 87 · bubble 17.2 % · proved: no better order"
    assert rest[0].endswith("ends before 87.")
    assert [line[:6] for line in rest[2:6]] == [f"rank {rank}" for rank in range(4)]
    assert max(map(len, rest)) <= 100
    assert outcome.out.isprintable() or "\x1b" not in outcome.out


def test_json_has_the_promised_keys_and_figures():
    document = schedule("--kind", "zb-h2", *SIZES, "--json").json
    assert list(document) == ["trainplan_version", *KEYS]
    assert document["makespan"] == 27
    assert document["max_stage_span"] == 24
    assert document["gap_fraction"] == 0
    assert document["optimal"] is True
    assert document["peak_activations"] == [7, 7, 7, 7]
    assert document["placement"] == "loop"


def test_what_is_freed_at_the_input_gradient_is_held_for_less():
    document = schedule("--kind", "zb-h1", *SIZES, "--json").json
    assert document["peak_activations"] == [4, 4, 4, 4]
    assert document["peak_activations_released_at_input_grad"] == [4, 3, 2, 1]


def test_a_schedule_that_needs_two_virtual_stages_takes_them():
    document = schedule("--kind", "zb-v", *SIZES, "--json").json
    assert (document["vpp"], document["placement"], document["makespan"]) == (2, "v", 51)


def test_messages_cost_what_they_cost_in_closed_form():
    document = schedule("--kind", "1f1b", *SIZES, *UNEVEN, "--p2p", "0.25", "--json").json
    p, m, c = 4, 8, 0.25
    assert document["makespan"] == (m + p - 1) * 9 + c * (2 * (p - 2) + 2 * (p - 1) * m / p)


def test_activations_that_wait_on_the_host_take_no_memory():
    shape = (*SIZES, "--vpp", "2")
    plain = schedule("--kind", "interleaved", *shape, "--json").json
    hidden = schedule("--kind", "interleaved", *shape, "--offload", "1", "--json").json
    assert hidden["makespan"] == plain["makespan"]
    assert max(hidden["peak_activations"]) == 2 < max(plain["peak_activations"])
    assert hidden["kind"] == "interleaved+offload"
    assert hidden["runs_on"] == []
    half = ("--offload", "1", "--offload-chunks", "1", "--json")
    some = schedule("--kind", "interleaved", *shape, *half).json["peak_activations"]
    assert max(hidden["peak_activations"]) < max(some) < max(plain["peak_activations"])
    refused(schedule("--synthesise", *shape, "--offload", "1"), "--offload")


def test_stages_that_state_bytes_are_weighed(tmp_path):
    stage = {"forward": 1, "input_grad": 1, "weight_grad": 1}
    held = {"input_grad_frees_bytes": 2**30, "weight_grad_frees_bytes": 2**31}
    path = tmp_path / "stages.json"
    path.write_text(json.dumps([{**stage, **held}] * 4))
    wanted = ("--kind", "zb-h1", *SIZES, "--stage-times", path)
    document = schedule(*wanted, "--json").json
    held = document["peak_activations"], document["peak_activations_released_at_input_grad"]
    for size, late, early in zip(document["peak_activation_bytes"], *held, strict=True):
        assert 3 * 2**30 * early <= size <= 3 * 2**30 * late
    assert document["peak_activation_bytes"][0] == 12 * 2**30
    assert "12.0" in schedule(*wanted).out
    refused(schedule(*wanted, "--offload", "1"), "--offload")


def test_all_kinds_are_ranked():
    document = schedule("--kind", "all", *SIZES, "--vpp", "2", "--json").json
    assert list(document) == ["trainplan_version", "schedules", "refused"]
    found = document["schedules"]
    assert all(list(one) == KEYS for one in found)
    assert [one["makespan"] for one in found] == sorted(one["makespan"] for one in found)
    assert {"zb-v", "v-half", "v-min", "interleaved"} <= {one["kind"] for one in found}
    assert "1f1b" in {one["kind"] for one in document["refused"]}
    text = schedule("--kind", "all", *SIZES, "--vpp", "2").out
    assert text.startswith(found[0]["kind"])
    assert "megatron-zero-bubble" in text


def test_only_schedules_of_a_placement_are_ranked_on_request():
    document = schedule("--kind", "all", *SIZES, "--vpp", "2", "--placement", "v", "--json").json
    assert {one["placement"] for one in document["schedules"]} == {"v"}


def test_a_synthesised_schedule_keeps_the_memory_limit(tmp_path: Path):
    path = tmp_path / "order.csv"
    wanted = (*SIZES, *UNEVEN, "--memory-limit", "4", "--time-limit", "2", "--csv", path)
    document = schedule("--synthesise", *wanted, "--json").json
    assert document["makespan"] == 87
    assert document["optimal"] is True
    assert max(document["peak_activations"]) <= 4
    again = schedule("--from-csv", path, *UNEVEN, "--json").json
    assert again["makespan"] == 87


def test_without_the_solver_rules_of_thumb_answer_and_say_so_where_more_may_be_found(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "ortools", None)
    wanted = ("--synthesise", *SIZES, *UNEVEN, "--json")
    found = schedule(*wanted, "--vpp", "2", "--placement", "v", "--memory-limit", "6")
    assert found.json["makespan"] > found.json["lower_bound"]
    assert found.json["optimal"] is False
    (line,) = found.err.splitlines()
    assert "no solver looked for a better order" in line
    assert "pip install 'trainplan[schedules]'" in line
    proved = schedule(*wanted, "--memory-limit", "4")
    assert (proved.json["optimal"], proved.err) == (True, "")


def test_a_file_is_scored_like_the_schedule_it_holds(tmp_path: Path):
    path = tmp_path / "schedule.csv"
    made = schedule("--kind", "zb-v", *SIZES, *UNEVEN, "--csv", path, "--json").json
    read = schedule("--from-csv", path, *UNEVEN, "--json").json
    assert {**read, "kind": "zb-v", "runs_on": made["runs_on"]} == made
    refused(schedule("--from-csv", path, "--pp", "3"), "--pp is 3, the file has 4")
    refused(schedule("--kind", "zb-v", *SIZES, "--csv", path), "exists; --force replaces it")
    assert schedule("--kind", "zb-v", *SIZES, "--csv", path, "--force").code == 0


def test_stage_times_make_the_slowest_stage_the_bound(tmp_path: Path):
    path = tmp_path / "times.yaml"
    path.write_text("forward: [1, 1, 1, 2]\ninput_grad: [1, 1, 1, 2]\nweight_grad: [1, 1, 1, 2]\n")
    document = schedule("--kind", "1f1b", *SIZES, "--stage-times", path, "--json").json
    assert document["makespan"] == 3 + 8 * 6 + 3 * 2
    words = "replaces --forward, --input-grad and --weight-grad"
    refused(schedule("--kind", "1f1b", *SIZES, "--stage-times", path, "--forward", "1"), words)
    refused(
        schedule("--kind", "1f1b", "--pp", "3", "--num-microbatches", "8", "--stage-times", path),
        "4 entries, but pp * vpp = 3",
    )


def test_splitting_the_backward_pass_helps_and_is_advised():
    whole = schedule("--kind", "1f1b", *SIZES).out
    document = schedule("--kind", "1f1b", *SIZES, "--split-backward", "--json").json
    assert document["makespan"] < 33
    assert f"--split-backward: {document['makespan']:g}" in whole


def test_sequence_chunks_shorten_the_bubble():
    wanted = ("--kind", "seq-1f1b", *SIZES, "--json")
    whole = schedule(*wanted).json
    cut = schedule(*wanted, "--sequence-chunks", "4", "--attention-share", "0.3").json
    assert cut["makespan"] < whole["makespan"]
    assert cut["peak_activations"][0] < whole["peak_activations"][0]


def test_a_shared_output_layer_costs_its_shares():
    wanted = ("--kind", "vocab-1f1b", *SIZES, "--json")
    free = schedule(*wanted).json["makespan"]
    assert (
        schedule(*wanted, "--vocab-forward", "0.5", "--vocab-backward", "1").json["makespan"]
        >= free + 4 * 1.5
    )
