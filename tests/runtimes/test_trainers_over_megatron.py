"""Files of trainers over Megatron are taken by each project's own parser or schema."""

import json
import os
import subprocess
import sys

import pytest

from tests.runtimes.launches import launch
from tests.runtimes.plans import MEGATRON
from tests.runtimes.test_exports_are_taken import planned
from tests.runtimes.verdicts import CHECKERS
from trainplan.costmodel.base import GIB, UnsupportedError
from trainplan.planner.runtimes import TRAINERS

pytestmark = pytest.mark.runtime
CHECKOUTS = {
    "verl": ("VERL_PATH",),
    "slime": ("SLIME_PATH", "MEGATRON_LM_PATH"),
    "nemo-rl": ("NEMO_RL_PATH",),
    "ms-swift": ("MS_SWIFT_PATH",),
    "llama-factory": ("LLAMA_FACTORY_PATH", "MCORE_ADAPTER_PATH"),
}
"""Variables that name the checkouts a trainer needs: without one its test is skipped."""
FEWEST = {"verl": 12, "slime": 16, "nemo-rl": 12, "ms-swift": 15, "llama-factory": 14}
"""Plans that it has keys for."""
OFFLINE = {"HF_HUB_OFFLINE": "1"}


def written(trainer, one, folder):
    """What the script of a plan starts; null: the project has no key for it."""
    job = one.job("megatron-lm").model_copy(update={"reserve_bytes": 60 * GIB})
    try:
        config = TRAINERS[trainer](job, one.layout)
    except UnsupportedError:
        return None
    folder.mkdir()
    return launch(one, "megatron-lm", folder, lambda _: config)


@pytest.mark.parametrize("trainer", CHECKOUTS)
def test_the_project_takes_the_plans_and_understands_their_layouts(trainer, tmp_path):
    absent = [name for name in CHECKOUTS[trainer] if name not in os.environ]
    if absent:
        pytest.skip(f"{' and '.join(absent)} names no checkout")
    plans = {one.name: one for one in MEGATRON}
    launches = [
        found
        for number, one in enumerate(MEGATRON)
        if (found := written(trainer, one, tmp_path / f"plan{number}"))
    ]
    assert len(launches) >= FEWEST[trainer]
    ran = subprocess.run(
        [sys.executable, str(CHECKERS / f"check_{trainer.replace('-', '_')}.py")],
        input=json.dumps(launches),
        env=os.environ | OFFLINE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    verdicts = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(verdicts) == len(launches)
    for verdict in verdicts:
        assert verdict["refusal"] is None, verdict
        intended = planned(plans[verdict["name"]])
        assert verdict["understood"] == {name: intended[name] for name in verdict["understood"]}
