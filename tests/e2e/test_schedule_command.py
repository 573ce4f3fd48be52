"""`plan schedule` and `plan simulate`: answers, files, JSON keys, refusals."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.schedules import SCHEDULES
from tests.e2e.command import TINY, Outcome, plan, refused

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
SIMULATED = [
    "schedule",
    "pp",
    "vpp",
    "num_microbatches",
    "makespan_s",
    "bubble_fraction",
    "lower_bound_s",
    "gap_fraction",
    "optimal",
    "pipeline_ranks",
    "dp_comm_s",
    "optimizer_s",
    "overhead_s",
    "step_time_s",
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
    assert list(document) == KEYS
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
    asked = ("--kind", "zb-h1", *SIZES, "--stage-times", path)
    document = schedule(*asked, "--json").json
    held = document["peak_activations"], document["peak_activations_released_at_input_grad"]
    for size, late, early in zip(document["peak_activation_bytes"], *held, strict=True):
        assert 3 * 2**30 * early <= size <= 3 * 2**30 * late
    assert document["peak_activation_bytes"][0] == 12 * 2**30
    assert "12.0" in schedule(*asked).out
    refused(schedule(*asked, "--offload", "1"), "--offload")


def test_all_kinds_are_ranked():
    document = schedule("--kind", "all", *SIZES, "--vpp", "2", "--json").json
    assert list(document) == ["schedules", "refused"]
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
    asked = (*SIZES, *UNEVEN, "--memory-limit", "4", "--time-limit", "2", "--csv", path)
    document = schedule("--synthesise", *asked, "--json").json
    assert document["makespan"] == 87
    assert document["optimal"] is True
    assert max(document["peak_activations"]) <= 4
    again = schedule("--from-csv", path, *UNEVEN, "--json").json
    assert again["makespan"] == 87


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
    asked = ("--kind", "seq-1f1b", *SIZES, "--json")
    whole = schedule(*asked).json
    cut = schedule(*asked, "--sequence-chunks", "4", "--attention-share", "0.3").json
    assert cut["makespan"] < whole["makespan"]
    assert cut["peak_activations"][0] < whole["peak_activations"][0]


def test_a_shared_output_layer_costs_its_shares():
    asked = ("--kind", "vocab-1f1b", *SIZES, "--json")
    free = schedule(*asked).json["makespan"]
    assert (
        schedule(*asked, "--vocab-forward", "0.5", "--vocab-backward", "1").json["makespan"]
        >= free + 4 * 1.5
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("give one of --kind KIND",)),
        (("--kind", "1f1b", "--synthesise", *SIZES), ("give one of --kind KIND",)),
        (("--kind", "zb-g", *SIZES), ("unknown schedule 'zb-g'", "did you mean", "'zb-v'")),
        (("--kind", "1f1b", "--pp", "4"), ("--num-microbatches",)),
        (("--kind", "1f1b", "--num-microbatches", "4"), ("--pp",)),
        (("--kind", "1f1b", *SIZES, "--forward", "nan"), ("not a finite number",)),
        (("--kind", "1f1b", *SIZES, "--forward", "-1"), ("a duration is 0 or more",)),
        (("--kind", "1f1b", *SIZES, "--p2p", "inf"), ("--p2p",)),
        (("--kind", "1f1b", *SIZES, "--p2p", "1e300"), ("p2p is 1e+300", "a duration is 0, or")),
        (("--kind", "1f1b", *SIZES, "--vocab-forward", "1e300"), ("a duration is 0, or",)),
        (("--kind", "1f1b", *SIZES, "--forward", "1e-300"), ("a duration is 0, or lies",)),
        (
            ("--kind", "1f1b", *SIZES, "--memory-limit", "2"),
            ("raise it to 4, the smallest 1f1b runs with",),
        ),
        (("--kind", "1f1b", *SIZES, "--vpp", "2"), ("1f1b runs with vpp=1",)),
        (("--kind", "zb-v", *SIZES, "--placement", "loop"), ("in a v",)),
        (("--kind", "zb-h2", "--pp", "4", "--num-microbatches", "6"), ("2 * pp - 1",)),
        (("--kind", "1f1b", *SIZES, "--sequence-chunks", "2"), ("no sequence_chunks",)),
        (("--kind", "1f1b", "--pp", "9999", "--num-microbatches", "99999"), ("5,000,000",)),
        (("--kind", "all", "--pp", "9999", "--num-microbatches", "99999"), ("5,000,000",)),
        (("--synthesise", *SIZES, "--vpp", "2", "--memory-limit", "1"), ("smallest limit", "2")),
        (
            ("--kind", "all", *SIZES, "--vpp", "2", "--memory-limit", "1"),
            ("no schedule runs with this memory", "v-min, needs --memory-limit 4"),
        ),
        (("--kind", "all", *SIZES, "--vpp", "2", "--sequence-chunks", "2"), ("in this shape",)),
        (("--kind", "chimera", *SIZES, "--csv", "x.csv"), ("two copies of the model",)),
        (("--from-csv", "/nowhere.csv"), ("no such file",)),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_bad_input_is_refused_in_one_line(arguments: tuple[str, ...], words: tuple[str, ...]):
    refused(schedule(*arguments), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0B0,1F0\n", "stage 1, micro batch 0"),
        ("1F0,1B0,0F0,0B0\n", "deadlocks"),
        ("0F0,0B0\n0F1,0B1\n", "on rank 0"),
        ("0F0,0X0\n", "0X0"),
        ("0F999999999,0B0\n", "no rank runs"),
        ("", "empty"),
    ],
)
def test_a_broken_schedule_file_is_refused(tmp_path: Path, text: str, words: str):
    path = tmp_path / "broken.csv"
    path.write_text(text)
    refused(schedule("--from-csv", path), str(path), words)


NUMBERS = st.sampled_from(
    ["0", "1", "2", "3", "4", "7", "0.5", "-1", "nan", "inf", "1e300", "x", ""]
)
OPTIONS = st.sampled_from(
    [
        *("--pp", "--vpp", "--num-microbatches", "--microbatch-group-size", "--sequence-chunks"),
        *("--memory-limit", "--forward", "--input-grad", "--weight-grad", "--p2p", "--width"),
        *("--attention-share", "--vocab-forward", "--vocab-backward", "--offload"),
    ]
)
FLAGS = st.sampled_from(["--split-backward", "--json", "--placement=v", "--placement=loop"])
KINDS = st.sampled_from([*SCHEDULES, "all", "zb"])


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(KINDS, st.dictionaries(OPTIONS, NUMBERS, max_size=4), st.lists(FLAGS, max_size=2))
def test_any_options_are_answered_or_refused(kind: str, stated: dict[str, str], flags: list[str]):
    sizes = {"--pp": "4", "--num-microbatches": "8", **stated}
    outcome = schedule(f"--kind={kind}", *(f"{k}={v}" for k, v in sizes.items()), *flags)
    assert outcome.code in (0, 2), outcome
    if outcome.code == 2:
        refused(outcome)
    elif "--json" in flags:
        document = outcome.json
        for one in document.get("schedules", [document]):
            assert one["lower_bound"] <= one["makespan"] * (1 + 1e-9)
            assert 0 <= one["bubble_fraction"] <= 1


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    outcome = plan("search", *TINY, "--fix", "pp=4", "--top", "3", "--output", path)
    assert outcome.code == 0, outcome
    return path


def test_a_plan_is_simulated_as_it_was_estimated(plan_file: Path):
    best = json.loads(plan_file.read_text())["best"]
    outcome = plan("simulate", plan_file, "--json")
    assert outcome.err == ""
    found = outcome.json
    assert list(found) == SIMULATED
    assert found["schedule"] == best["layout"]["schedule"]
    assert found["step_time_s"] == pytest.approx(best["estimate"]["step_time_s"])
    terms = best["estimate"]["terms"]
    assert found["dp_comm_s"] == pytest.approx(terms["dp_comm"])
    assert found["optimizer_s"] == pytest.approx(terms["optimizer"] + terms["offload"])
    assert found["overhead_s"] == pytest.approx(terms["overhead"])
    parts = ("makespan_s", "dp_comm_s", "optimizer_s", "overhead_s")
    assert sum(found[part] for part in parts) == pytest.approx(found["step_time_s"])
    assert len(found["pipeline_ranks"]) == 4


def test_another_candidate_of_a_plan_is_simulated(plan_file: Path):
    second = json.loads(plan_file.read_text())["candidates"][1]
    found = plan("simulate", plan_file, "--candidate", "2", "--json").json
    assert found["step_time_s"] == pytest.approx(second["estimate"]["step_time_s"])
    refused(plan("simulate", plan_file, "--candidate", "99"), "no candidate 99")


def test_the_trace_of_a_plan_ends_with_the_optimizer(plan_file: Path, tmp_path: Path):
    trace, order = tmp_path / "trace.json", tmp_path / "schedule.csv"
    outcome = plan("simulate", plan_file, "--trace", trace, "--csv", order)
    assert outcome.code == 0
    assert f"wrote {trace}" in outcome.err
    assert max(map(len, outcome.out.splitlines())) <= 100
    found = plan("simulate", plan_file, "--json").json
    events = json.loads(trace.read_text())["traceEvents"]
    updates = [event for event in events if event["name"] == "optimizer"]
    assert len(updates) == 4
    ends = max(event["ts"] + event["dur"] for event in updates) / 1e6
    whole = found["makespan_s"] + found["dp_comm_s"] + found["optimizer_s"]
    assert ends == pytest.approx(whole)
    scored = plan("schedule", "--from-csv", order, "--json").json
    assert scored["num_microbatches"] == found["num_microbatches"]
    refused(plan("simulate", plan_file, "--trace", trace), "exists; --force replaces it")


def test_a_plan_made_with_other_numbers_is_remarked_on(plan_file: Path, tmp_path: Path):
    document = json.loads(plan_file.read_text())
    document["best"]["estimate"]["step_time_s"] *= 2
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert "give the --profile it was made with" in plan("simulate", path).err


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": "x"}', "{", '{"best": 3}'])
def test_no_plan_is_no_plan(tmp_path: Path, text: str):
    path = tmp_path / "plan.json"
    path.write_text(text)
    refused(plan("simulate", path))
    refused(plan("simulate", path, "--candidate", "1"))
