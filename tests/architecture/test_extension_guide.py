"""The runtime and the exporter of the extension guide work as they stand."""

import re
from pathlib import Path

import pytest

from trainplan.costmodel.base.errors import PlanError, UnsupportedError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes.registry import RUNTIMES, traits_of
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.questions import check, estimate

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-rule-or-exporter.md"


def example(heading: str, name: str):
    """What the Python blocks below a heading define."""
    section = GUIDE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile("\n".join(blocks), str(GUIDE), "exec"), names)
    return names[name]


@pytest.fixture
def job(make_job, monkeypatch):
    """One of the guide's runtime, which is registered."""
    traits = example("A runtime", "TOYTRAIN")
    monkeypatch.setattr(
        "trainplan.costmodel.runtimes.registry.RUNTIMES", {**RUNTIMES, traits.name: traits}
    )
    return make_job("small-dense", "1x8:h100-sxm").model_copy(update={"runtime": traits.name})


def test_the_runtime_is_priced_under_its_rules_and_options(job):
    assert estimate(job, Layout(dp=8, zero_stage=3)).memory.headroom_bytes > 0
    with pytest.raises(PlanError, match="data_parallel_only"):
        check(job, Layout(tp=2, dp=4, zero_stage=3))
    stated = job.model_copy(update={"options": RuntimeOptions(gradient_dtype="fp32")})
    sizes = [traits_of(one).gradients.message_bytes for one in (job, stated)]
    assert sizes == [2, 4]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_exporter_is_launched_and_refuses(launcher, job):
    export = example("An exporter", "TOYTRAIN")
    config = export(job, Layout(dp=8, zero_stage=3))
    assert "reshard_after_forward = true\n" in config.files[0].text
    assert "-m toytrain.train" in LAUNCHERS[launcher](config, job.cluster).text
    with pytest.raises(UnsupportedError, match="dp_replicate"):
        export(job, Layout(dp=8, dp_replicate=2, zero_stage=3))
    with pytest.raises(UnsupportedError, match="toytrain has no option for tp = 2"):
        export(job, Layout(tp=2, dp=4))
