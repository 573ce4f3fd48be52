"""Profile this CPU, estimate steps of models that it has not seen, and run them: how far off?

`python -m tests.benchmarks.closed_loop [--quick] [--rounds 3] [--only WORD]`, from the root, with
torch. Each round profiles one and two processes, then runs every case at once, so that a machine
that others use too is as slow for both; the table has the median over the rounds. Needs a quiet
machine all the same: two threads that wait for each other on busy cores are twenty times slower.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLAN = (sys.executable, "-c", "from trainplan.cli.main import main; main()")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
SECONDS = re.compile(r"^step \d+: .* ([\d.]+) s,", re.MULTILINE)
STEPS, WARM = 8, 2
ITEMS = ("layer", "gemm", "attention", "embedding", "head", "optimizer", "stream")
MESSAGES = ("collectives", "p2p", "overlap")


@dataclass(frozen=True)
class Model:
    name: str
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    seq_length: int
    micro_batch_size: int
    micro_batches: int = 1

    def write(self, folder):
        """Its file, and the options of its job but for the batch."""
        path = folder / f"{self.name}.yaml"
        sizes = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
        fields = {one: getattr(self, one) for one in (*sizes, "num_key_value_heads", "vocab_size")}
        fields |= {"name": self.name, "head_dim": self.hidden_size // self.num_attention_heads}
        path.write_text(json.dumps(fields | {"max_position_embeddings": 2048}), "utf-8")
        return ("--model", str(path), "--seq-length", str(self.seq_length))


MODELS = (
    Model("wide", 2, 768, 2048, 12, 4, 8192, 256, 2),
    Model("deep", 10, 320, 896, 5, 5, 4096, 384, 1, micro_batches=2),
    Model("long", 3, 512, 1536, 8, 8, 4096, 1024, 1),
    Model("words", 4, 256, 768, 4, 2, 16384, 128, 4, micro_batches=3),
)
"""None has a width, depth or length of the model that is profiled; wide and words are larger and
smaller than it, words has most of its work in the head."""


@dataclass(frozen=True)
class Way:
    name: str
    processes: int
    layout: dict[str, int]
    runtime: str = "fsdp2"
    ddp: bool = False

    def cuts(self, model):
        """Does it divide the heads of the model?"""
        tp = self.layout["tp"]
        return model.num_attention_heads % tp == 0 == model.num_key_value_heads % tp

    @property
    def priced(self):
        return "torch-eager" if self.ddp else self.runtime


WAYS = (
    Way("one process", 1, {"tp": 1, "dp": 1, "zero_stage": 0}),
    Way("DDP", 2, {"tp": 1, "dp": 2, "zero_stage": 0}, ddp=True),
    Way("replicas", 2, {"tp": 1, "dp": 2, "zero_stage": 0}),
    Way("ZeRO-1", 2, {"tp": 1, "dp": 2, "zero_stage": 1}),
    Way("ZeRO-3", 2, {"tp": 1, "dp": 2, "zero_stage": 3}),
    Way("tensor", 2, {"tp": 2, "dp": 1, "zero_stage": 0}),
)


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(*words, **environment):
    done = subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def profiled(folder, processes, *, quick):
    path = folder / f"profile-{processes}.json"
    items = (*ITEMS, *(MESSAGES if processes > 1 else ()))
    chosen = [word for one in items for word in ("--only", one)]
    fast = ("--quick",) if quick else ()
    start = ("profile", "--nproc-per-node", processes, "--output", path)
    run(*PLAN, *start, *fast, *chosen, "--restart", "--force")
    return path


def both(folder, model, way, profile):
    """Seconds of a step as estimated and as run."""
    batch = model.micro_batch_size * model.micro_batches * way.layout["dp"]
    where = (*model.write(folder), "--cluster", profile, "--global-batch-size", batch)
    layout = {**way.layout, "micro_batch_size": model.micro_batch_size}
    named = ",".join(f"{key}={value}" for key, value in layout.items())
    wanted = ("estimate", *where, "--runtime", way.priced, "--layout", named, "--json")
    written = json.loads(run(*PLAN, *wanted))["estimate"]
    fixed = [w for k, v in {**layout, "recompute": "none"}.items() for w in ("--fix", f"{k}={v}")]
    tokens = str(STEPS * batch * model.seq_length)
    plan, launch = folder / "plan.json", folder / "launch"
    search = ("search", *where, "--runtime", way.runtime, *fixed, "--tokens", tokens)
    run(*PLAN, *search, "--output", plan, "--force")
    run(*PLAN, "export", plan, "--output-dir", launch, "--force")
    if way.ddp:
        script = Path(__file__).with_name("ddp_step.py")
        stated = run(*TORCHRUN, "--nproc_per_node", way.processes, script, launch, STEPS)
    else:
        folders = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        stated = run("bash", launch / "run.sh", PATH=folders)
    steps = [float(one) for one in SECONDS.findall(stated)]
    assert len(steps) == STEPS, stated
    return written, statistics.median(steps[WARM:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="of quick profiles")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--terms", action="store_true", help="also the terms of each estimate")
    wanted = parser.parse_args()
    every = [(m, w) for w in WAYS for m in MODELS if w.cuts(m)]
    cases = [(m, w) for m, w in every if wanted.only in f"{w.name}/{m.name}"]
    found = {(m.name, w.name): [] for m, w in cases}
    for number in range(wanted.rounds):
        with tempfile.TemporaryDirectory(prefix="closed-loop-") as name:
            folder, profiles = Path(name), {}
            for model, way in cases:
                if way.processes not in profiles:
                    begin = time.perf_counter()
                    profiles[way.processes] = profiled(folder, way.processes, quick=wanted.quick)
                    took = time.perf_counter() - begin
                    say(f"round {number + 1}: {way.processes} profiled in {took:.0f} s")
                written, took = both(folder, model, way, profiles[way.processes])
                ratio = written["step_time_s"] / took
                found[model.name, way.name].append(ratio)
                line = f"{way.name:12} {model.name:6} {written['step_time_s']:7.3f} s {took:7.3f} s"
                say(f"{line} {ratio - 1:+7.1%}")
                if wanted.terms:
                    say({k: round(v, 4) for k, v in written["terms"].items() if v > 1e-6})
    say(f"\n{'median of rounds':20} error")
    for (model, way), ratios in found.items():
        say(f"{way:12} {model:7} {statistics.median(ratios) - 1:+7.1%}")
    errors = [abs(statistics.median(ratios) - 1) for ratios in found.values()]
    say(f"{len(errors)} cases: median {statistics.median(errors):.1%}, most {max(errors):.1%}")


if __name__ == "__main__":
    main()
