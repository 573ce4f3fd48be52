"""The commit a launch is written for is the one whose own code is asked every night."""

import re
from pathlib import Path

import pytest
import yaml

from tests.runtimes.plans import PLANS
from tests.runtimes.verdicts import CHECKOUTS
from trainplan.planner.runtimes import EXPORTERS, TRAINERS

ROOT = Path(__file__).parents[2]
JOB = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text("utf-8"))["jobs"]["runtimes"]
PAGE = (ROOT / "docs/how-to/check-exports-with-the-runtimes.md").read_text("utf-8")


def commit(runtime):
    """That the job checks out into the folder which the runtime's variable names."""
    folder = JOB["env"][CHECKOUTS[runtime][0]].rpartition("}}/")[2]
    steps = [step.get("with", {}) for step in JOB["steps"]]
    (ref,) = [stated["ref"] for stated in steps if stated.get("path") == folder]
    return ref


OF_CHECKOUTS = [name for name, exporter in EXPORTERS.items() if exporter.source_patterns]
"""Those that do not write the program, too."""


def test_every_exporter_is_asked_about():
    """The Trainer of transformers, of PyPI, runs what is written for it: a script and its file."""
    assert {*PLANS} == {*CHECKOUTS} - {*TRAINERS} == {*OF_CHECKOUTS, "transformers"}


def test_the_release_that_is_installed_is_the_one_that_is_written_for():
    plan = PLANS["transformers"][0]
    config = EXPORTERS["transformers"](plan.job("transformers"), plan.layout)
    (step,) = [one["run"] for one in JOB["steps"] if "transformers==" in one.get("run", "")]
    assert f"transformers=={config.runtime_version} " in step
    assert f"transformers=={config.runtime_version} " in PAGE
    assert config.checked.startswith(f"{len(PLANS['transformers'])} plans ")


@pytest.mark.parametrize("runtime", OF_CHECKOUTS)
def test_the_commit_is_the_one_that_is_written_for(runtime):
    plan = PLANS[runtime][0]
    config = EXPORTERS[runtime](plan.job(runtime), plan.layout)
    assert re.fullmatch("[0-9a-f]{40}", commit(runtime))
    assert commit(runtime).startswith(config.runtime_version)
    assert commit(runtime) in PAGE
    assert config.checked.startswith(f"{len(PLANS[runtime])} plans ")
