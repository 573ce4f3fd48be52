"""The image and the conda package build and answer, where the tools are there (`make runtimes`)."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "examples" / "packaging"
JOB = ("--model", "gpt2", "--cluster", "1x8:h100-sxm", "--global-batch-size", "8")
MOST_BYTES = 400e6

pytestmark = pytest.mark.runtime


def output(*words):
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_image_is_small_and_plans():
    ready = (
        shutil.which("docker")
        and not subprocess.run(["docker", "info"], capture_output=True, check=False).stderr
    )
    if not ready:
        pytest.skip("no docker, or its daemon does not run")
    output("docker", "build", "-f", str(PACKAGING / "Dockerfile"), "-t", "trainplan:test", ".")
    size = output("docker", "image", "inspect", "-f", "{{.Size}}", "trainplan:test")
    assert int(size) < MOST_BYTES
    run = ("docker", "run", "--rm", "--network=none", "trainplan:test", "search")
    assert json.loads(output(*run, *JOB, "--seq-length", "1024", "--json"))["best"]


def test_the_conda_package_builds_and_passes_its_own_tests(tmp_path):
    if not shutil.which("rattler-build"):
        pytest.skip("no rattler-build")
    recipe = str(PACKAGING / "conda")
    output("rattler-build", "build", "--recipe", recipe, "--output-dir", str(tmp_path))
    assert list(tmp_path.rglob("trainplan-*.conda"))
