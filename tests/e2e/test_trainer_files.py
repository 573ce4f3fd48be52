"""`plan export --trainer` as users type it."""

import pytest

from tests.e2e.command import plan, refused

JOB = (
    *("--model", "llama3.2-1b", "--cluster", "1x8:h100-sxm", "--search-options", "none"),
    *("--global-batch-size", "16", "--seq-length", "2048", "--top", "2"),
)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    written = tmp_path_factory.mktemp("plans") / "plan.json"
    found = plan("search", *JOB, "--runtime", "deepspeed", "--output", str(written))
    assert found.code == 0
    return str(written), found.out.splitlines()[1].split(" a step")[0]


def test_a_plan_becomes_the_file_of_a_trainer_which_check_reads(planned, tmp_path):
    path, step = planned
    launch = tmp_path / "launch"
    out = plan("export", path, "--trainer", "llama-factory", "--output-dir", str(launch)).out
    assert out.startswith(f"Wrote {launch}/run.sh,")
    assert "DATASET_DIR: the folder of dataset_info.json" in " ".join(out.split())
    found = plan("check", str(launch / "run.sh"), "--cluster", "1x8:h100-sxm").out
    assert f"It runs and fits: {step} a step" in found


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--trainer", "llama-factory", "--runtime", "deepspeed"), "leave --runtime"),
        (("--trainer", "llama"), "unknown trainer 'llama'"),
    ],
)
def test_words_that_do_not_go_together_are_named(planned, tmp_path, words, says):
    path, _ = planned
    stated = refused(plan("export", path, *words, "--output-dir", str(tmp_path / "x")))
    assert says in " ".join(stated.split())
