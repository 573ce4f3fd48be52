"""Attack every reader of files and options: `python -m tests.attack.readers --inputs 5000`.

A valid document is changed in one or two places, or as text; the command has to answer or to
refuse in one line, soon. Prints what does not, with its seed, and how many of what it tried.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import yaml

from tests.e2e.command import TINY, plan
from tests.golden.decoder_counts import recorded
from trainplan.costmodel.presets.presets import preset_config, preset_names

ROOT = Path(__file__).parents[2]
LATE_SECONDS = 5.0
"""Of the processor: no input may take longer."""
NUMBERS = (
    *(0, -1, 1, 2, 3, 7, 0.5, 1.5, -0.0, 1e-300, 1e18, 1e30, 1e308, 10**6, 48_000_000),
    *(2**31, 2**63, 10**18, 10**30, 10**400, float("nan"), float("inf"), -float("inf")),
)
VALUES = (
    *NUMBERS,
    *(None, True, False, "", "8", "1_0", "\uff18", "yes", "nan", "x" * 500, [], {}, [1], {"a": 1}),
    *([None], [[[]]], "full_attention", "\0", "\x1b[31m", "$(id)", "..", [10**9] * 3),
)
WORDS = (
    *("0", "-1", "1_0", "1,000", "\uff18", "\u0663", "1e-300", "1e400", "nan", "inf", "", "true"),
    *("yes", "48000000", "9" * 30, "0x8", "1.5", "x", "1" * 5000, "None", "8k", "2w", "30GiB"),
)
FAILURES = {
    "mtbf_node_days": 100.0,
    "restart_minutes": 10.0,
    "save": "async",
    "checkpoint_gb_per_s": 5.0,
    "spare_nodes": 1,
    "repair_hours": 24.0,
}
LARGE = ("--global-batch-size", "4096", "--seq-length", "1024")
Place = tuple[str | int, ...]


def places(value: object, path: Place = ()) -> Iterator[Place]:
    """Of every part of a document."""
    parts = value.items() if isinstance(value, dict) else ()
    parts = enumerate(value[:8]) if isinstance(value, list) else parts
    for name, part in parts:
        yield (*path, name)
        yield from places(part, (*path, name))


def changed(value: object, random: Random) -> object:
    """A copy with a part replaced, removed, repeated or under another name."""
    copy = json.loads(json.dumps(value))
    where = list(places(copy))
    for _ in range(random.choice((1, 1, 2)) if where else 0):
        *path, last = random.choice(where)
        holder = copy
        try:
            for name in path:
                holder = holder[name]
            change = random.random()
            if change < 0.7:
                holder[last] = random.choice(VALUES)
            elif change < 0.85:
                del holder[last]
            elif isinstance(holder, dict):
                holder[f"{last}s"] = holder[last]
            elif isinstance(holder, list):
                holder.extend(holder * random.choice((1, 50)))
        except (KeyError, IndexError, TypeError):  # the first change took the place
            continue
    return copy


def damaged(text: str, random: Random) -> str:
    """A text with a piece of it replaced, dropped or repeated."""
    start = random.randrange(len(text) + 1)
    end = min(len(text), start + random.choice((0, 1, 5, 40, len(text))))
    piece = random.choice(
        (*WORDS, "{", "[", "\n", '"', "- ", ": ", "&a ", "*a", text[start:end] * 50)
    )
    return text[:start] + piece + text[end:]


def as_yaml(value: object) -> str:
    """A document as YAML."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


class Readers:
    """Valid documents, and the commands that read them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        presets = [dict(preset_config(name)) for name in preset_names()]
        self.configs = [*presets, *(one.config for one in recorded())]
        made = folder / "made.json"
        assert plan("search", *TINY, "--output", made).code == 0
        self.plan = json.loads(made.read_text())
        self.model = yaml.safe_load((ROOT / "examples/tiny.yaml").read_text())
        clusters = [ROOT / "examples/deepseek-v3-on-2048-h100/cluster.yaml"]
        clusters += (ROOT / "examples/headlines").glob("*v100.yaml")
        self.clusters = [yaml.safe_load(one.read_text()) for one in clusters]
        self.clusters += [one | {"failures": FAILURES} for one in self.clusters]
        self.runs = (ROOT / "examples/accuracy/runs.jsonl").read_text().splitlines()[:40]
        self.launch = (ROOT / "examples/check-a-launch/train.sbatch").read_text()
        self.profile = json.loads((ROOT / "tests/replay/cpu_two_processes.json").read_text())
        self.all: Sequence[tuple[int, Callable[[Random], Sequence[str | Path]]]] = (
            (8, self.config),
            (2, self.own_model),
            (3, self.cluster),
            (4, self.written_plan),
            (2, self.run),
            (2, self.measured),
            (1, self.launched),
            (1, self.lengths),
            (1, self.offers),
            (4, self.options),
            (2, self.layout),
            (1, self.schedule),
        )

    def file(self, name: str, text: str) -> Path:
        """A file to read."""
        path = self.folder / name
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return path

    def document(self, name: str, value: object, random: Random) -> Path:
        """A changed document; one in eight is damaged as text, too."""
        value = changed(value, random)
        text = as_yaml(value) if name.endswith(".yaml") else json.dumps(value)
        return self.file(name, damaged(text, random) if random.random() < 0.125 else text)

    def config(self, random: Random) -> Sequence[str | Path]:
        """A config.json."""
        path = self.document("config.json", random.choice(self.configs), random)
        return ("catalog", "models", path, *random.choice(((), ("--json",))))

    def own_model(self, random: Random) -> Sequence[str | Path]:
        """A model as our YAML."""
        return ("catalog", "models", self.document("model.yaml", self.model, random), "--json")

    def cluster(self, random: Random) -> Sequence[str | Path]:
        """A cluster."""
        path = self.document("cluster.yaml", random.choice(self.clusters), random)
        job = ("--model", "gpt2", "--cluster", path, *LARGE, "--tokens", "1T")
        return ("estimate", *job, "--layout", "tp=1")

    def written_plan(self, random: Random) -> Sequence[str | Path]:
        """A plan."""
        path = self.document("plan.json", self.plan, random)
        return random.choice(
            (
                ("export", path, "--output-dir", self.folder / "launch", "--force"),
                ("simulate", path),
                ("report", path, "--output", self.folder / "page.html", "--force"),
            )
        )

    def run(self, random: Random) -> Sequence[str | Path]:
        """Measured runs."""
        record = json.dumps(changed(json.loads(random.choice(self.runs)), random))
        text = damaged(record, random) if random.random() < 0.125 else record
        return ("validate", self.file("runs.jsonl", text))

    def measured(self, random: Random) -> Sequence[str | Path]:
        """A profile."""
        path = self.document("profile.json", self.profile, random)
        return (
            "estimate",
            "--model",
            "gpt2",
            "--cluster",
            path,
            *LARGE,
            "--layout",
            "zero_stage=0",
        )

    def launched(self, random: Random) -> Sequence[str | Path]:
        """A launch script."""
        path = self.file("train.sbatch", damaged(self.launch, random))
        return ("check", path, "--time-limit", "2")

    def lengths(self, random: Random) -> Sequence[str | Path]:
        """Lengths of sequences."""
        value = random.choice(([[512, 3], [1024, 9]], {"512": 3, "1024": 9}))
        path = self.document("lengths.json", value, random)
        return ("estimate", *TINY, "--layout", "tp=1", "--lengths", path)

    def offers(self, random: Random) -> Sequence[str | Path]:
        """Offers."""
        value = {"offers": [{"cluster": "1x8:h100-sxm", "price_per_gpu_hour": 2.5}]}
        path = self.document("offers.yaml", value, random)
        job = ("--model", "gpt2", *TINY[4:], "--tokens", "1B", "--objective", "cost")
        return ("search", *job, "--offers", path, "--time-limit", "1")

    def options(self, random: Random) -> Sequence[str | Path]:
        """Options of a job."""
        names = (
            *("--global-batch-size", "--seq-length", "--tokens", "--price", "--loss-tokens"),
            *(
                "--memory-margin",
                "--reserve",
                "--nic",
                "--power-limit",
                "--carbon",
                "--pue",
                "--option",
                "--train",
            ),
            *("--mtbf-node", "--restart", "--checkpoint", "--save", "--spare-nodes", "--repair"),
        )
        name, word = random.choice(names), random.choice(WORDS)
        word = f"dropout={word}" if name == "--option" else word
        return ("estimate", *TINY, "--layout", "tp=1", f"{name}={word}")

    def layout(self, random: Random) -> Sequence[str | Path]:
        """The text of a layout."""
        names = ("tp", "pp", "vpp", "cp", "dp", "ep", "mbs", "zero_stage", "offload", "recompute")
        pairs = (f"{random.choice(names)}={random.choice((*WORDS, '2'))}" for _ in range(2))
        return ("estimate", *TINY, f"--layout={','.join(pairs)}")

    def schedule(self, random: Random) -> Sequence[str | Path]:
        """Sizes and durations of a schedule; 8,000 ranks are priced, which takes long."""
        usual = [word for word in WORDS if word != "8k"]
        names = ("--pp", "--num-microbatches", "--forward", "--backward", "--vpp")
        words = [f"{random.choice(names)}={random.choice((*usual, '2'))}" for _ in range(2)]
        return ("schedule", "--kind", "1f1b", "--pp=2", "--num-microbatches=4", *words)


def attack(inputs: int, seed: int) -> tuple[list[str], Counter[str]]:
    """What was found in so many inputs, and how often each reader refused or answered."""
    findings, tally = list[str](), Counter[str]()
    with TemporaryDirectory() as folder:
        readers = Readers(Path(folder))
        weights = [weight for weight, _ in readers.all]
        for number in range(seed, seed + inputs):
            random = Random(number)
            (_, reader), *_ = random.choices(readers.all, weights)
            words = reader(random)
            before = time.process_time()
            outcome = plan(*words)
            seconds = time.process_time() - before
            kind = {0: "answered", 2: "refused"}.get(outcome.code, "bug")
            tally[f"{reader.__name__} {kind}"] += 1
            if kind == "bug" or "Traceback" in outcome.err or seconds > LATE_SECONDS:
                last = (outcome.err.splitlines() or [""])[-1]
                findings.append(f"seed {number} {reader.__name__}: {seconds:.1f} s, {last[:300]}")
                print(findings[-1], flush=True)  # noqa: T201 (its result)
    return findings, tally


def main() -> int:
    """Attack with so many inputs."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    findings, tally = attack(given.inputs, given.seed)
    for name, count in sorted(tally.items()):
        print(f"{count:6,} {name}")  # noqa: T201
    print(f"{sum(tally.values()):,} inputs, {len(findings)} findings")  # noqa: T201
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
