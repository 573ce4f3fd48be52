"""Host memory, drives and lanes, as a user meets them."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, refused, with_value

JOB = (
    *("--model", "llama2-13b", "--runtime", "deepspeed", "--precision", "fp16"),
    *("--global-batch-size", "8", "--seq-length", "1024", "--workers", "1"),
)
BEST = ("--slack", "0")
"""Alternatives a little slower are not searched for."""
STORED = "zero_stage=3,offload.checkpoints=1"
DRIVES = "{count: 4, tb: 2, read_gb_per_s: 3, write_gb_per_s: 2, tb_written: 100}"


@pytest.fixture(name="node")
def _node(tmp_path: Path):
    """(host) -> a file of one V100 with that host."""

    def write(host: str | None) -> str:
        path = tmp_path / "node.yaml"
        line = "groups:\n  - {gpu: v100-sxm-32gb, num_nodes: 1, gpus_per_node: 1%s}\n"
        path.write_text(line % (f", host: {host}" if host else ""))
        return str(path)

    return write


def test_thirteen_billion_parameters_fit_one_v100_and_the_page_says_what_its_host_holds(node):
    done = plan("search", *JOB, *BEST, "--cluster", node("{memory_gib: 1536}"))
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert "of 32.0 GiB · host" in " ".join(lines[:4])
    assert "of 1536.0 GiB a node" in " ".join(lines[:4])
    assert "Lanes of a step, slowest rank" in done.out
    assert "Bound by: GPU" in done.out
    assert max(len(line) for line in lines) <= 100


def test_a_host_that_is_too_small_is_named_with_what_would_do(node):
    done = plan("search", *JOB, "--cluster", node("{memory_gib: 128}"), "--json")
    assert done.code == 2
    document = done.json
    assert document["refused"]["host_memory"] > 0
    needed = document["least_host_bytes"] / 2**30
    assert 128 < needed < 260
    assert document["changes"][0].startswith(f"a host of at least {int(needed) + 1} GiB a node")
    text = plan("search", *JOB, "--cluster", node("{memory_gib: 128}"))
    assert "Nothing fits: what has room on the GPUs needs" in text.out
    enough = plan("search", *JOB, *BEST, "--cluster", node(f"{{memory_gib: {int(needed) + 1}}}"))
    assert enough.code == 0


def test_drives_take_what_the_host_has_no_room_for_and_the_page_says_how_long_they_last(node):
    cluster = node(f"{{memory_gib: 128, drives: {DRIVES}}}")
    done = plan("search", *JOB, *BEST, "--cluster", cluster)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "offload.tier nvme" in text
    assert "GiB a step and node go to the drives: they last" in text
    full = DRIVES.replace("tb: 2", "tb: 0.01")
    host = f"{{memory_gib: 128, drives: {full}}}"
    done = plan("search", *JOB, "--cluster", node(host), "--json")
    assert done.code == 2
    assert done.json["refused"]["drive_space"] > 0


def test_a_host_that_nobody_described_is_not_checked_and_the_page_says_so():
    layout = ("--layout", "tp=8,offload=1")
    job = ("--model", "llama3-70b", "--global-batch-size", "8", "--seq-length", "4096")
    done = plan("estimate", *job, "--cluster", "1x8:h200-sxm", *layout)
    text = " ".join(done.out.split())
    assert "host at least 12" in text  # 70.6e9 parameters of 8 bytes, 8 page-locked, 2 saved
    assert "host memory unknown: not checked, and a node needs at least 1,26" in text
    known = plan("estimate", *job, "--cluster", "1x8:h200-sxm@dgx-h200", *layout)
    assert "not checked, and a node needs" not in " ".join(known.out.split())


def test_an_estimate_that_no_host_holds_says_so(node):
    layout = ("--layout", "zero_stage=3,offload=1,offload.parameters=cpu")
    done = plan("estimate", *JOB[:-2], "--cluster", node("{memory_gib: 128}"), *layout)
    assert "Does not fit (host_memory): a node needs at least " in " ".join(done.out.split())


def test_memory_of_the_host_can_be_left_to_another_tenant(node):
    cluster = ("--cluster", node("{memory_gib: 1536}"))
    done = plan("search", *JOB, *cluster, "--reserve-host", "1400GiB")
    assert done.code == 2
    assert "drop --reserve-host 1400GiB" in done.out
    done = plan("search", *JOB, *BEST, *cluster, "--reserve-host", "1000GiB", "--json")
    assert done.json["reserve_host_bytes"] == 1000 * 2**30
    assert done.json["certificate"]["reserve"]["reserve_host_bytes"] == 1000 * 2**30
    refused(plan("search", *TINY, "--reserve-host", "1GiB"), "is not known", "host: {memory_gib")
    refused(plan("search", *JOB, *cluster, "--reserve-host", "2000GiB"), "so nothing is left")


@pytest.mark.parametrize(
    ("host", "layout", "words"),
    [
        ("{memory_gib: 64}", "zero_stage=3,offload=1,offload.tier=nvme", ["nodes_have_drives"]),
        (
            "{drives: {tb: 1}}",
            "zero_stage=3,offload.parameters=nvme",
            ["nodes_have_drives", "read_gb_per_s"],
        ),
        ("{memory_gib: 64}", "zero_stage=2,offload.parameters=cpu", ["zero_stage 3"]),
        ("{memory_gib: 64}", "zero_stage=3,offload.stride=1", ["use 0, or 2 and more"]),
        ("{memory_gib: 64}", "zero_stage=3,offload=1,offload.stride=2", ["runtime_keeps_stride"]),
        ("{memory_gib: 64}", "zero_stage=3,offload.checkpoints=1", ["recompute=full"]),
        ("{memory_gib: 64}", "zero_stage=3,offload.checkpoints=0.5,recompute=full", ["0, 1"]),
        ("{memory_gib: 64}", "zero_stage=3,offload.parameters=disk", ["offload.parameters"]),
        ("{memory_gib: 64}", "zero_stage=3,offload.optimzer=1", ["did you mean"]),
    ],
)
def test_what_cannot_be_kept_there_is_refused_in_one_line(node, host, layout, words):
    done = plan("estimate", *JOB[:-2], "--cluster", node(host), "--layout", layout)
    refused(done, *words)


@pytest.mark.parametrize("host", [None, "{drives: {tb: 4}}"])
def test_a_method_that_keeps_everything_on_drives_asks_for_them(node, host):
    done = plan("search", *JOB, "--cluster", node(host), "--runtime", "fuyou")
    refused(done, "fuyou keeps its states on drives", "host.drives", "read_gb_per_s")


@pytest.mark.parametrize("host", [None, "{drives: {tb: 4}}"])
def test_checkpoints_go_to_no_drive_of_unknown_speed(node, host):
    job = (*JOB[:-2], "--cluster", node(host), "--runtime", "ssdtrain")
    refused(plan("estimate", *job, "--layout", STORED), "nodes_have_drives", "host.drives")
    done = plan("search", *job, "--fix", "offload.checkpoints=1", "--json")
    assert done.code == 2
    assert done.json["refused"]["nodes_have_drives"] > 0


@pytest.mark.parametrize(
    ("runtime", "drives", "stated"),
    [
        ("deepspeed", "", True),
        ("deepspeed", f", drives: {DRIVES}", False),
        ("patrickstar", "", False),
    ],
)
def test_drives_are_advised_where_they_are_missing_and_the_runtime_takes_them(
    node, runtime, drives, stated
):
    cluster = node(f"{{memory_gib: 4{drives}}}")
    done = plan("search", *JOB, "--cluster", cluster, "--runtime", runtime, "--json")
    assert done.code == 2
    [host] = [one for one in done.json["changes"] if "host.memory_gib" in one]
    assert ("host.drives" in host) == stated


@pytest.mark.parametrize("field", ["adam_params_per_s", "memory_gb_per_s", "drives.read_gb_per_s"])
def test_a_speed_whose_seconds_are_no_numbers_is_refused_by_its_field(node, field):
    name = field.removeprefix("drives.")
    drives = f"drives: {{tb: 1, {name}: 1e-300, write_gb_per_s: 1}}"
    host = f"{{{drives if name != field else f'{name}: 1e-300'}}}"
    done = plan(
        "estimate", *JOB[:-2], "--cluster", node(host), "--layout", "zero_stage=3,offload=1"
    )
    refused(done, field, "must be at least")


def test_fixed_and_excluded_places_hold(node):
    cluster = ("--cluster", node(f"{{memory_gib: 1536, drives: {DRIVES}}}"))
    fixed = ("--fix", "offload.optimizer=1", "--fix", "offload.parameters=nvme")
    done = plan("search", *JOB, *BEST, *cluster, *fixed, "--exclude", "offload.tier=nvme", "--json")
    offload = done.json["best"]["layout"]["offload"]
    assert (offload["optimizer"], offload["tier"]) == (1.0, "cpu")
    assert (offload["parameters"], offload["parameters_tier"]) == (1.0, "nvme")


def test_lanes_are_drawn_and_written(node, tmp_path):
    path = tmp_path / "plan.json"
    cluster = ("--cluster", node("{memory_gib: 1536}"))
    done = plan("search", *JOB, *BEST, *cluster, "--output", path)
    assert done.code == 0
    trace = tmp_path / "trace.json"
    drawn = plan("simulate", path, "--trace", trace)
    assert "Lanes of the slowest rank" in drawn.out
    events = json.loads(trace.read_text())["traceEvents"]
    lanes = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {"slowest rank: CPU", "slowest rank: host to GPU"} <= lanes
    document = plan("simulate", path, "--json").json
    end = max(one["end_s"] for one in document["lanes"])
    explained = document["makespan_s"] + document["optimizer_s"]
    assert end == pytest.approx(explained, rel=1e-6)
    explained = plan("explain", path, "--time-limit", "0.1")
    assert "Lanes of a step, slowest rank" in explained.out


def test_methods_that_no_runtime_has_are_priced_and_exported_by_nobody(node, tmp_path):
    listed = plan("catalog", "methods", "--json").json["methods"]
    priced = [name for name, one in listed.items() if one["priced_as"]]
    assert {"fuyou", "deep-optimizer-states", "zero-offload-delayed", "se-moe"} <= {*priced}
    assert all(listed[name]["runtime"] is None for name in priced)
    assert "priced as a method: --runtime fuyou" in plan("catalog", "methods").out
    job = with_value(with_value(JOB, "--model", "llama2-7b"), "--runtime", "zero-offload-delayed")
    path = tmp_path / "plan.json"
    done = plan("search", *job, *BEST, "--cluster", node("{memory_gib: 512}"), "--output", path)
    assert done.code == 0, done.err
    assert "changes the training: a step computes with weights that lack the update" in done.out
    exported = plan("export", path, "--output-dir", tmp_path / "launch")
    refused(exported, "zero-offload-delayed", "priced as a method that no runtime has")


def test_hosts_of_the_catalog_are_listed():
    known = plan("catalog", "hosts", "--json").json["hosts"]
    assert known["dgx-h100"]["memory_gib"]["value"] == 2048
    assert "dgx-2" in plan("catalog", "hosts").out
