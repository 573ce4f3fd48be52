"""Launches with operations as users write them: read back as planned, and refused with a line."""

import json

import pytest

from tests.e2e.command import SMALLER, plan

HELD = ("--fix", "tp=2", "--fix", "pp=1", "--fix", "cp=1", "--fix", "recompute=none")


@pytest.fixture(scope="module", params=["megatron-lm", "megatron-bridge", "torchtitan"])
def planned(request, tmp_path_factory):
    """A runtime's plan, and where it lies."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    options = ("--runtime", request.param, *HELD, "--slack", "0", "--output", path, "--json")
    return plan("search", *SMALLER, *options).json, path


def test_a_launch_with_operations_is_read_to_the_same_layout_and_step(planned, tmp_path):
    document, path = planned
    folder = tmp_path / "launch"
    written = plan(
        "export", path, "--launcher", "slurm", "--with", "operations", "--output-dir", folder
    )
    assert written.code == 0, written.err
    read = plan("check", folder / "run.sbatch", "--time-limit", "0.1", "--json").json
    best = document["best"]["layout"]
    assert read["layout"] == {name: best[name] for name in read["layout"]} | {
        "offload": read["layout"]["offload"]
    }
    step = document["best"]["estimate"]["step_time_s"]
    assert read["estimate"]["step_time_s"] == step
    steps = max(1, round(1800 / step))
    assert f"a checkpoint every {steps} steps: 30 minutes, assumed" in written.out


def test_a_launch_of_nodes_that_fail_is_read_with_the_saves_that_it_is_priced_with(tmp_path):
    fails = ("--mtbf-node", "5d", "--restart", "10m", "--checkpoint", "5GB/s", "--save", "async")
    path, folder = tmp_path / "plan.json", tmp_path / "launch"
    options = ("--runtime", "megatron-lm", "--tokens", "1T", *fails, *HELD)
    found = plan("search", *SMALLER, *options, "--output", path, "--json").json
    goodput, step = found["spent"]["goodput"], found["best"]["estimate"]["step_time_s"]
    steps = round(goodput["save_interval_s"] / step)
    written = plan("export", path, "--output-dir", folder)
    assert f"a checkpoint every {steps} steps" in " ".join(written.out.split())
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(json.dumps(found["cluster"]))
    read = plan(
        "check", folder / "run.sh", "--cluster", cluster, "--time-limit", "0.1", "--json"
    ).json
    assert read["saves"]["steps"] == read["saves"]["best_steps"] == steps
    assert read["saves"]["best"] == goodput
    assert read["job"]["cluster"]["failures"]["save"] == "async"
    listed = plan("export", path, "--keys", "primus")
    assert f"a checkpoint every {steps} steps" in " ".join(listed.out.split())


def test_keys_and_single_ranks_take_no_operations(tmp_path):
    refused = plan("export", tmp_path / "plan.json", "--with", "operations", "--keys", "verl")
    assert refused.code == 2
    assert "--with adds to a launch script" in refused.err


def test_an_unknown_addition_is_named(tmp_path):
    refused = plan("export", tmp_path / "plan.json", "--with", "operation")
    assert refused.code == 2
    assert "did you mean 'operations'" in refused.err
