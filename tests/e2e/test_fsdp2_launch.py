"""From a search to a module of plain PyTorch beside its launch script."""

import ast
import subprocess

from tests.e2e.command import plan

SEARCH = (
    *("search", "--model", "llama3.1-8b", "--cluster", "1x8:h100-sxm", "--runtime", "fsdp2"),
    *("--global-batch-size", "64", "--seq-length", "4096"),
)


def test_a_searched_plan_is_exported(tmp_path):
    document, folder = tmp_path / "plan.json", tmp_path / "launch"
    searched = plan(*SEARCH, "--output", str(document), "--json")
    assert searched.code == 0, searched.err
    stated = plan("export", str(document), "--launcher", "torchrun", "--output-dir", str(folder))
    assert stated.code == 0, stated.err
    assert "random tokens" in stated.out
    assert "Set these first" not in stated.out
    assert {path.name for path in folder.iterdir()} == {"run.sh", "train_fsdp2.py", "plan.json"}
    assert subprocess.run(["bash", "-n", folder / "run.sh"], check=False).returncode == 0
    ast.parse((folder / "train_fsdp2.py").read_text("utf-8"))


def test_another_model_is_refused_in_one_line(tmp_path):
    document = tmp_path / "plan.json"
    search = [word if word != "llama3.1-8b" else "qwen3-8b" for word in SEARCH]
    refused = plan(*search, "--output", str(document), "--json")
    assert refused.code == 2
    assert "norms" in refused.err and len(refused.err.splitlines()) == 1
