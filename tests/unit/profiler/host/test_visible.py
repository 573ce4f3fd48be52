"""GPUs of this machine, as the drivers' own tools name them."""

import json
from pathlib import Path

import pytest

from trainplan.profiler.host.visible import visible_gpus


def tool(folder: Path, name: str, answer: str, code: int = 0) -> None:
    """A program that answers with these lines."""
    path = folder / name
    (folder / f"{name}.txt").write_text(answer)
    path.write_text(f'#!/bin/sh\ncat "{folder}/{name}.txt"\nexit {code}\n')
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs beside those of the system, on a machine with no GPU."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name in ("cat",):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_a_tool_there_is_no_gpu(folder: Path):
    assert visible_gpus() is None


def test_each_line_of_the_driver_is_a_gpu(folder: Path):
    tool(folder, "nvidia-smi", "NVIDIA H100 80GB HBM3\n" * 8)
    found = visible_gpus()
    assert found is not None
    assert (found.tool, found.names) == ("nvidia-smi", ("NVIDIA H100 80GB HBM3",) * 8)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [("0,2", ["a", "c"]), ("GPU-1f,GPU-2f", ["a", "b"]), ("7", None), ("", None)],
)
def test_only_gpus_that_a_program_would_see_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, names: list[str] | None
):
    tool(folder, "nvidia-smi", "a\nb\nc\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    found = visible_gpus()
    assert (list(found.names) if found else None) == names


def test_a_driver_that_fails_has_no_gpu(folder: Path):
    tool(folder, "nvidia-smi", "NVIDIA-SMI has failed\n", code=9)
    assert visible_gpus() is None


def test_the_tool_of_amd_is_asked_next(folder: Path):
    cards = {f"card{i}": {"Card Series": "AMD Instinct MI300X", "GUID": "1"} for i in range(4)}
    tool(folder, "rocm-smi", json.dumps(cards))
    found = visible_gpus()
    assert found is not None
    assert (found.tool, found.names) == ("rocm-smi", ("AMD Instinct MI300X",) * 4)


@pytest.mark.parametrize("answer", ["", "no json", "[1]", "3"])
def test_an_answer_that_is_none_has_no_gpu(folder: Path, answer: str):
    tool(folder, "rocm-smi", answer)
    assert visible_gpus() is None
