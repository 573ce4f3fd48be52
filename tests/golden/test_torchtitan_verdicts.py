"""Random launches of torchtitan: legal or not as torchtitan itself says, and for its reason."""

import json
import shlex
from pathlib import Path

from tests.torchtitan_jobs import launch
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.torchtitan.read import TORCHTITAN

RECORDED = json.loads((Path(__file__).parent / "torchtitan" / "verdicts.json").read_text("utf-8"))


def read(one):
    words = shlex.split(one["flags"])
    return TORCHTITAN.read(launch(*words, nodes=1, gpus=one["ranks"]), Request(strict=True))


def test_a_launch_is_legal_where_the_runtime_takes_it():
    wrong = [one for one in RECORDED["launches"] if read(one).legal == ("cause" in one)]
    assert len(RECORDED["launches"]) >= 150
    assert wrong == []


def test_what_the_runtime_stops_at_is_named():
    refused = [one for one in RECORDED["launches"] if "cause" in one]
    named = [
        one["cause"] in [p.cause for p in read(one).problems if p.verdict == "illegal"]
        for one in refused
    ]
    assert len(refused) >= 80
    assert all(named)
