"""Where it is trained, said in options; network and price without a file."""

from pathlib import Path

import click
import pytest

from tests.e2e.command import plan, refused
from trainplan.cli.commands.check import command as check
from trainplan.cli.values import machine
from trainplan.cli.values.machine import (
    stated_of,
    with_failures,
    with_nic,
    with_power_limit,
    with_price,
)
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.profiler.host.visible import Visible

SIZES = ("--model", "gpt2", "--global-batch-size", "64", "--seq-length", "1024", "--layout", "tp=1")
TWO = parse_cluster("2x8:h100-sxm")


def priced(*options: str) -> tuple[str, str]:
    """Answer and remarks of an estimate."""
    done = plan("estimate", *SIZES, *options, "--json")
    assert done.code == 0, done.err
    return done.out, done.err


@pytest.mark.parametrize(
    ("options", "text", "written"),
    [
        (("--nodes", "2", "--gpus", "8"), "2x8:h100-sxm", "--gpus are those of each node"),
        (("--gpus", "16"), "2x8:h100-sxm", "2 nodes of 8 h100-sxm"),
        (("--nodes", "2"), "2x8:h100-sxm", "2 nodes of 8 h100-sxm: the usual size"),
        (("--nodes", "4", "--gpus", "4"), "4x4:h100-sxm", "4 nodes of 4 h100-sxm"),
    ],
)
def test_counts_and_a_gpu_are_another_way_to_say_a_cluster(
    options: tuple[str, ...], text: str, written: str
):
    counted, remarks = priced(*options, "--gpu", "h100")
    assert counted == priced("--cluster", text)[0]
    assert written in remarks
    assert len(remarks.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpus", "8"), ["--gpus needs --gpu", "--gpus 64 --gpu h100"]),
        (("--gpu", "h100"), ["--gpu needs --gpus"]),
        (
            ("--gpus", "8", "--cluster", "1x8:h100-sxm"),
            ["--cluster and --gpus both state the cluster"],
        ),
        (("--nodes", "2", "--gpus", "8", "--gpu", "h100-smx"), ["did you mean 'h100-sxm'"]),
        (("--nodes", "2", "--gpu", "p5.48xlarge"), ["write --cluster 2xp5.48xlarge"]),
        (("--gpus", "12", "--gpu", "h100"), ["12 GPUs fill no nodes of 8"]),
    ],
)
def test_counts_that_say_no_cluster_are_refused(options: tuple[str, ...], words: list[str]):
    refused(plan("estimate", *SIZES, *options), *words)


@pytest.mark.parametrize(
    ("text", "adapters", "gb_per_s_of_a_gpu"),
    [
        ("400Gb/s", 8, 50),
        ("400Gbps", 8, 50),
        ("400 Gb/s/gpu", 8, 50),
        ("400", 8, 50),
        ("50GB/s", 8, 50),
        ("8x400", 8, 50),
        ("4x100Gb/s", 4, 6.25),
        ("1x25GB/s", 1, 3.125),
        ("3200Gb/s/node", 1, 50),
        ("100GB/s/node", 1, 12.5),
    ],
)
def test_a_network_is_read_by_its_unit_and_count(
    text: str, adapters: int, gb_per_s_of_a_gpu: float, capsys: pytest.CaptureFixture[str]
):
    nic = with_nic(TWO, text).groups[0].nic
    assert nic is not None
    assert nic.per_node == adapters
    assert nic.per_node * nic.gb_per_s / 8 == pytest.approx(gb_per_s_of_a_gpu)
    assert f"{gb_per_s_of_a_gpu:.3g} GB/s for each GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "fast", "0Gb/s", "0x400Gb/s", "8x400Gb/s/gpu", "400MB/s", "9999x400", "-1", "1e3"]
)
def test_a_network_that_is_none_is_refused(text: str):
    with pytest.raises(SpecError, match="--nic"):
        with_nic(TWO, text)


def test_a_network_replaces_that_of_the_machine_and_says_so(capsys: pytest.CaptureFixture[str]):
    with_nic(cluster_of("2xp4d"), "100Gb/s")
    assert "8 x 100 Gb/s efa in a node" in (written := capsys.readouterr().err)
    assert "instead of 4 x 100 Gb/s efa" in written


def test_a_thinner_network_makes_a_step_longer():
    def seconds(nic: str) -> float:
        done = plan("estimate", *SIZES, "--cluster", "2x8:h100-sxm", "--nic", nic, "--json")
        time = done.json["estimate"]
        assert isinstance(time, dict)
        return float(time["step_time_s"])

    assert seconds("1x25Gb/s") > seconds("400Gb/s") * 1.2
    assert seconds("3200Gb/s/node") == pytest.approx(seconds("8x50GB/s"))


def test_a_card_without_a_usual_network_needs_no_file_for_one():
    options = ("--gpus", "16", "--gpu", "l40s")
    lines = plan("estimate", *SIZES, *options).err.splitlines()
    assert "give --nic 400Gb/s, or a cluster file" in lines[-1]
    assert priced(*options, "--nic", "100Gb/s")


@pytest.mark.parametrize(
    ("text", "money", "currency"),
    [
        ("2.5", 2.5, "USD"),
        ("$2.5", 2.5, "USD"),
        ("EUR 2", 2, "EUR"),
        ("2 eur", 2, "EUR"),
        ("€1.99", 1.99, "EUR"),
        ("£3", 3, "GBP"),
        ("2.5 USD/h", 2.5, "USD"),
    ],
)
def test_a_price_is_money_of_a_gpu_for_an_hour(text: str, money: float, currency: str):
    cluster = with_price(TWO, text)
    assert cluster.groups[0].price_per_gpu_hour == money
    assert cluster.currency == currency


@pytest.mark.parametrize("text", ["", "cheap", "$", "-1", "$2 EUR", "1e9", "nan", "2,5"])
def test_a_price_that_is_none_is_refused(text: str):
    with pytest.raises(SpecError, match="--price"):
        with_price(TWO, text)


def test_money_is_the_price_times_gpu_hours_and_wins_over_the_file(tmp_path: Path):
    path = tmp_path / "priced.yaml"
    path.write_text(
        "groups:\n  - {gpu: h100-sxm, num_nodes: 2, gpus_per_node: 8, price_per_gpu_hour: 1}\n"
    )
    done = plan("estimate", *SIZES, "--cluster", path, "--price", "EUR 3", "--tokens", "1T")
    assert "--price: 3 EUR, instead of 1 USD" in done.err
    (line,) = (line for line in done.out.splitlines() if "GPU-hours" in line)
    hours, money = (
        float(part.split()[0].replace(",", "")) for part in line.split(" · ") if "days" not in part
    )
    assert money == pytest.approx(3 * hours, rel=0.01)
    assert line.endswith("EUR")


def test_the_cheapest_is_found_with_a_price_on_the_command_line():
    job = ("search", "--model", "gpt2", "--global-batch-size", "8", "--seq-length", "1024")
    wanted = ("--cluster", "1x8:h100-sxm", "--objective", "cost", "--tokens", "1B")
    refused(plan(*job, *wanted), "has no price: give --price")
    assert " USD" in plan(*job, *wanted, "--price", "2").out


def here(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = Visible("nvidia-smi", names) if names else None
    monkeypatch.setattr(machine, "visible_gpus", lambda: found)


def test_without_a_cluster_this_machine_is_asked_and_named(monkeypatch: pytest.MonkeyPatch):
    here(monkeypatch, *["NVIDIA H100 80GB HBM3"] * 4)
    found, written = priced()
    assert found == priced("--cluster", "1x4:h100-sxm")[0]
    assert written == (
        "no --cluster: this machine, 1x4:h100-sxm (nvidia-smi: 4 x NVIDIA H100 80GB HBM3)\n"
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), ["no GPU is visible here", "--cluster 8x8:h100", "plan profile"]),
        (("NVIDIA H100 80GB HBM3", "NVIDIA L4"), ["mixed GPUs", "NVIDIA L4"]),
        (("NVIDIA Quadro 600",), ["'NVIDIA Quadro 600' is not in the catalog", "plan profile"]),
    ],
)
def test_a_machine_that_is_no_cluster_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], words: list[str]
):
    here(monkeypatch, *names)
    refused(plan("estimate", *SIZES), *words)


@pytest.mark.parametrize(("text", "watts"), [("500", 500), ("500W", 500), ("0.5 kW", 500)])
def test_a_power_limit_is_of_every_group(text: str, watts: float):
    both = parse_cluster("1x8:h100-sxm+1x8:a100-sxm-80gb")
    assert {group.power_limit_w for group in with_power_limit(both, text).groups} == {watts}


@pytest.mark.parametrize("text", ["", "much", "0W", "-1", "500V", "1e3"])
def test_a_power_that_is_none_is_refused(text: str):
    with pytest.raises(SpecError, match="--power-limit"):
        with_power_limit(TWO, text)


def test_less_power_makes_a_step_longer():
    def seconds(*limit: str) -> float:
        done = plan("estimate", *SIZES, "--cluster", "1x8:h100-sxm", *limit, "--json")
        found = done.json["estimate"]
        assert isinstance(found, dict)
        return float(found["step_time_s"])

    assert seconds() < seconds("--power-limit", "400W") < seconds() * (700 / 400) ** (1 / 3)


FAILING = ("--mtbf-node", "400d", "--restart", "15m", "--checkpoint", "400Gb/s")


def test_failures_are_said_in_options_as_in_a_file(tmp_path: Path):
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: 2x8:h100-sxm\ngroups: [{gpu: h100-sxm, num_nodes: 2, gpus_per_node: 8}]\n"
        "failures: {mtbf_node_days: 400, restart_minutes: 15, checkpoint_gb_per_s: 50}\n"
    )
    on_line = priced("--cluster", "2x8:h100-sxm", "--tokens", "1B", *FAILING)[0]
    assert on_line == priced("--cluster", str(file), "--tokens", "1B")[0]
    assert '"fraction": 0.99' in on_line


def test_an_option_counts_before_the_file_and_the_rest_is_the_file_s():
    known = with_failures(TWO, {"mtbf_node": 400.0, "checkpoint": 50.0, "restart": 20.0})
    found = with_failures(known, {"save": "async", "restart": None}).failures
    assert found is not None
    assert (found.save, found.restart_minutes, found.mtbf_node_days) == ("async", 20, 400)
    assert with_failures(known, {"save": None}) is known


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--restart", "10m"), ["--restart", "give --mtbf-node 400d"]),
        (("--mtbf-node", "400d"), ["checkpoint_gb_per_s", "--checkpoint 50GB/s"]),
        (("--mtbf-node", "-5y"), ["--mtbf-node", "5y, 400d, 2000h or published"]),
        (("--mtbf-node", "0d"), ["--mtbf-node", "5y"]),
        ((*FAILING, "--checkpoint", "50GB"), ["is no speed", "50GB/s"]),
        ((*FAILING, "--checkpoint", "0GB/s"), ["is no speed", "50GB/s"]),
        ((*FAILING, "--spare-nodes", "2"), ["--repair 24h"]),
        ((*FAILING, "--spare-nodes", "-2"), ["--spare-nodes"]),
        ((*FAILING, "--save", "often"), ["way to save", "sync, async, local"]),
        (("--mtbf-node", "1h", *FAILING[4:], "--restart", "1d"), ["does not end", "--mtbf-node"]),
    ],
)
def test_failures_that_are_none_are_refused(options: tuple[str, ...], words: list[str]):
    refused(plan("estimate", *SIZES, "--cluster", "2x8:h100-sxm", *options), *words)


def test_a_launch_is_priced_with_the_failures_that_are_stated(tmp_path: Path):
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
        "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 --bf16 "
        "--micro-batch-size 1 --global-batch-size 64 --train-iters 10 --lr 1e-4 --mock-data "
        "--vocab-size 50257 --tokenizer-type NullTokenizer --save-interval 500 --save ckpt\n"
    )
    options = ("check", str(script), "--time-limit", "0.1", "--json")
    assert plan(*options).json["saves"] is None
    found = plan(*options, "--mtbf-node", "100d", "--checkpoint", "1GB/s").json["saves"]
    assert isinstance(found, dict)
    assert found["goodput"]["fraction"] < found["best"]["fraction"]
    refused(plan(*options, "--restart", "10m"), "give --mtbf-node 400d")


def test_a_launch_is_priced_on_the_network_that_is_stated():
    cluster = stated_of(nic="25Gb/s", power_limit="400W")(TWO)
    assert cluster == with_power_limit(with_nic(TWO, "25Gb/s"), "400W")
    assert stated_of(nic=None, power_limit=None, mtbf_node=None)(TWO) is TWO
    assert {"--nic", "--power-limit"} <= {one.opts[0] for one in check.params}


def test_what_a_failure_takes_needs_how_often_one_is():
    with pytest.raises(click.UsageError, match="--spare-nodes states what a failure takes"):
        with_failures(TWO, {"mtbf_node": None, "spare_nodes": 1})


def test_how_often_nodes_failed_in_a_published_run_is_told_with_its_source():
    options = ("--cluster", "2x8:h100-sxm", "--mtbf-node", "published", "--checkpoint", "50GB/s")
    out, err = priced(*options, "--tokens", "1B")
    assert '"mtbf_node_days": 264' in out
    assert "arXiv:2407.21783" in err
    both = parse_cluster("1x8:h100-sxm+1x8:a100-sxm-80gb")
    found = with_failures(both, {"mtbf_node": "published", "save": "local"}).failures
    assert found is not None
    assert found.mtbf_node_days == pytest.approx(2 / (1 / 264 + 1 / 71))
    with pytest.raises(SpecError, match=r"nodes of l40s fail, one does of a100-sxm-80gb and h100"):
        with_failures(parse_cluster("1x8:l40s"), {"mtbf_node": "published"})


def test_only_a_batch_likely_in_tokens_gets_a_remark():
    words = "a step of 4,000,000 has 4.096 B tokens; 4 M tokens are 3,906 sequences"
    batches = {"4M": True, "4k": False}
    for batch, remarked in batches.items():
        done = plan("estimate", *SIZES, "--cluster", "1x8:h100", "--global-batch-size", batch)
        assert done.code == 0, done.err
        assert (words in done.err) == remarked
