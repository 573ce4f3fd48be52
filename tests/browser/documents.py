"""A small document of every kind that has a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tests.e2e.command import TINY, plan

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "examples" / "accuracy" / "runs.jsonl"
PROFILE = ROOT / "examples" / "accuracy" / "profiles" / "simumax-b200.json"
MACHINE = {
    "schema": "trainplan/simulated-machine/v1",
    "seed": 5,
    "scalars": {"compute": 0.9},
    "own_spread": 0.08,
    "trial_spread": 0.01,
    "faults": {"crash": 0.4},
}
NUM_RUNS = 40
Document = dict[str, object]


class Documents:
    """Documents by kind, each made when it is first asked for, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.of = cache(self._of)

    def _of(self, kind: str) -> Document:
        return MADE[kind](self)

    @property
    def plan(self) -> Path:
        """A plan of a small job."""
        return self._written("plan.json", *TINY)

    @property
    def other(self) -> Path:
        """One of the same job, held to tensor parallelism."""
        return self._written("other.json", *TINY, "--fix", "tp=2")

    def _written(self, name: str, *job: str) -> Path:
        path = self.folder / name
        if not path.exists():
            words = (*job, "--search-options", "safe", "--output", path)
            assert plan("search", *words).code == 0
        return path

    def write(self, path: Path, document: Mapping[str, object]) -> None:
        """The report of a document."""
        source = path.with_suffix(".report.json")
        source.write_text(json.dumps(document), encoding="utf-8")
        outcome = plan("report", source, "--output", path)
        assert outcome.code == 0, outcome.err


def _plan(some: Documents) -> Document:
    document = json.loads(some.plan.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def _compare(some: Documents) -> Document:
    return plan("compare", some.plan, some.other, "--json").json


def _sweep(some: Documents) -> Document:
    return plan("sweep", some.plan, "--vary", "gpus=4..16", "--json").json


def _pareto(_some: Documents) -> Document:
    held = ("--fix", "pp=1", "--fix", "tp=1", "--fix", "recompute=none")
    return plan("search", *TINY, *held, "--pareto", "time,memory", "--json").json


def _validate(some: Documents) -> Document:
    lines = RUNS.read_text(encoding="utf-8").splitlines()
    path = some.folder / "runs.jsonl"
    path.write_text("\n".join(lines[:: len(lines) // NUM_RUNS]), encoding="utf-8")
    return plan("validate", path, "--json").json


def _tune(some: Documents) -> Document:
    machine, folder = some.folder / "machine.json", some.folder / "tuned"
    machine.write_text(json.dumps(MACHINE), encoding="utf-8")
    wanted = ("--simulate", machine, "--trials", "5", "--output-dir", folder)
    assert plan("tune", some.plan, *wanted).code == 0
    document = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def _profile(_some: Documents) -> Document:
    """Measurements of another tool, with links of three nodes, one slow and one to be doubted."""
    document = json.loads(PROFILE.read_text(encoding="utf-8"))
    kept = [one for one in document["points"] if one["kind"] != "gemm"]
    products = [one for one in document["points"] if one["kind"] == "gemm"]
    products[0]["time"] |= {"flags": ["noisy"], "spread_fraction": 0.2, "repeats": 7}
    document["points"] = [*products[:60], *kept, *LINKS]
    document["hosts"] = [{"name": name, "num_gpus": 8} for name in ("node-1", "node-2", "node-10")]
    return {**document, "num_nodes": 3}


def _link(source: str, target: str, gb_per_s: float, *flags: str) -> Document:
    time = {"seconds": 1 / gb_per_s, "flags": list(flags)}
    return {"kind": "link", "source": source, "target": target, "num_bytes": 10**9, "time": time}


LINKS = (
    _link("node-1", "node-2", 40.0),
    _link("node-2", "node-1", 44.0),
    _link("node-1", "node-10", 20.0, "noisy"),
    _link("node-2", "node-10", 41.0),
)
MADE: Mapping[str, Callable[[Documents], Document]] = {
    "plan": _plan,
    "compare": _compare,
    "sweep": _sweep,
    "pareto": _pareto,
    "validate": _validate,
    "tune": _tune,
    "profile": _profile,
}
