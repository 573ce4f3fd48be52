"""What the exported script of a plan starts: bash runs it, and a stand-in for torchrun tells."""

import json
import os
import subprocess
import sys
from pathlib import Path

from trainplan.planner.launch.config import EntryPoint
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS, TRAINERS

RECORDER = f"""#!{sys.executable}
import json, os, sys
json.dump({{"words": sys.argv[1:], "environment": dict(os.environ)}}, open("launch.json", "w"))
"""
NODE = {"NODE_RANK": "0", "MASTER_ADDR": "localhost", "ISLAND": "1"}
VALUED = (
    "--nnodes", "--nproc_per_node", "--node_rank", "--master_addr", "--master_port",
    "--max_restarts", "--numa_binding",
)  # fmt: skip


def launch(plan, runtime: str, folder: Path, edit=lambda config: config, given=()) -> dict:
    """Exports a plan into a folder, edited, and starts it there, as far as torchrun.

    Variables that only the user knows are their names in small letters, but for those `given`.
    """
    job = plan.job(runtime)
    config = edit((EXPORTERS if runtime in EXPORTERS else TRAINERS)[runtime](job, plan.layout))
    for file in config.files:
        (folder / file.name).write_text(file.text, "utf-8")
    launcher = LAUNCHERS["torchrun"]
    script = folder / launcher.file
    script.write_text(launcher.write(config, job.cluster), "utf-8")
    joined = f'#!/bin/sh\necho "0.0/{job.cluster.num_gpus}.0 GPU"\n'
    for name, text in (("torchrun", RECORDER), ("python3", RECORDER), ("ray", joined)):
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod(0o755)
    required = {one.name: one.name.lower() for one in config.required_environment}
    stated = required | NODE | dict(given)
    if "HF_MODEL" in stated:
        stated["HF_MODEL"] = str(folder / "model")
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(plan.config()), "utf-8")
    if isinstance(config.entry_point, EntryPoint):  # the script looks whether it is there
        (folder / config.entry_point.file).parent.mkdir(exist_ok=True)
        (folder / config.entry_point.file).touch()
        stated[config.entry_point.folder.name] = str(folder)
    elif config.entry_point.program is not None:
        (folder / config.entry_point.program).touch(0o755)
    path = {"PATH": f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    subprocess.run(["bash", str(script)], cwd=folder, env=stated | path, check=True)
    started = json.loads((folder / "launch.json").read_text("utf-8"))
    ranks, words = job.cluster.num_gpus, started["words"]
    if not config.by_ray:
        ranks, words = _behind_torchrun(words)
    variables = {n: v for n, v in started["environment"].items() if n not in ("PATH", "_")}
    return {
        "name": plan.name,
        "ranks": ranks,
        "words": words,
        "environment": variables,
        "folder": str(folder),
        "capability": 10 if "b200" in plan.cluster else 9,
    }


def _behind_torchrun(words: list[str]) -> tuple[int, list[str]]:
    """Number of ranks, and the program with its arguments."""
    stated, words = {}, list(words)
    while words[0].startswith("--"):
        flag = words.pop(0)
        stated[flag] = words.pop(0) if flag in VALUED else ""
    return int(stated["--nnodes"]) * int(stated["--nproc_per_node"]), words
