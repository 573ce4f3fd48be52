"""The page of the court: counts, every refusal with its cause, and a line for each recipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

Row = Mapping[str, object]
HEAD = """# Recipe court

Every public recipe of five projects, read from its text at a pinned commit, checked and priced by
the parts of `plan check`; nothing of them is run or imported. `examples/recipe_court/court.py`
writes this page; facts alone are kept, in `verdicts.jsonl` next to it.

* **starts**: nothing that was read stops it. **does not start**: the runtime refuses what is
  there. **undecided**: something that it hangs on was not read; the cause is named.
* **step** is the predicted time with the interval that holds four of five measured ones; **like**
  lists the measured runs it rests on (`unseen`, `assumed`, `stand_in`: none of its kind).
* **fits** has the chance that the memory holds it. **ours** is the step of the best plan that a
  short search found, over theirs; the numbers are the model's, not measurements.
* Where a recipe names no GPUs, one node of eight H100 is taken; that it does not fit there shows
  nothing against it.
"""
README = """# Every recipe of the court

    python examples/recipe_court/court.py --bridge PATH --megatron PATH --torchtitan PATH \\
      --primus PATH --maxtext PATH --write

reads every public pretraining and fine-tuning recipe of Megatron-Bridge, Megatron-LM's examples,
torchtitan, Primus and MaxText from checkouts, checks and prices each as `plan check` does, searches
briefly for something better, and writes `verdicts.jsonl`, this file and
[the page](../../docs/recipe-court.md), which has what the columns mean. Nothing of a checkout is
run or imported. Of the recipes facts alone are kept, with repository, path, commit and licence.
`reproduced.json` states by what each refusal was seen in the runtime's own validation, which ran on
fake ranks: Bridge's recipe, `runtime_config_update`, Megatron-Core's groups and split of layers.
`--page` writes both files anew from the recorded verdicts; `--only NAME` checks some and prints.

## How far from the optimum

    python examples/recipe_court/optimum.py --bridge PATH --write

takes the dense performance recipes of Megatron-Bridge that fit (Llama 3 of 8B, 70B and 405B, on
H100 to GB300), searches the job of each to its proof, and writes `optimum.jsonl`: the step of the
recipe, the least step that any layout can have by the cost model, whether the optimum is proved,
and the CPU time that this took. The cost model prices both sides: nothing was run.
"""
PULL = "https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/"
FIXES = (
    ("seven of Qwen3-235B on 64 GB200 and GB300", "an expert grid of 128 or 256 ranks", 6054, 7),
    ("four of DeepSeek-V3 on 128 VR200", "an expert grid of 256 ranks", 6083, 4),
    ("Qwen3.5-VL-397B at pp = 8", "60 layers over 8 stages", 5884, 8),
    ("Qwen3.5-VL-35B on 16 H100, fp8", "20 layers of a rank in 12 virtual stages", 5893, 1),
    ("Qwen3.5-VL-35B, fine-tuning on GB200", "uneven ends kept where pp is 1", 5846, 1),
    ("four of Qwen3.5-VL-122B and 397B, fine-tuning", "batch 36 or 32 by 4 a rank", 5832, 4),
    ("two of Nemotron-H-56B on 256 GPUs", "batch 192 over 128 replicas", 6091, 2),
)
"""What was refused, why, the pull request of August or September 2026, and how many it names.

Source: https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull, the description of each."""


def _fixes(rows: Sequence[Row]) -> Iterator[str]:
    refused = sum(row["verdict"] == "does not start" for row in rows)
    known = sum(count for *_, count in FIXES)
    yield "## Refused here, fixed there\n"
    yield (
        f"At Megatron-Bridge 067f987d (22 August 2026) {refused} of {len(rows)} recipes are "
        f"refused. Within a month {known} of these were repaired, or a repair proposed, by pull "
        "requests whose descriptions name the same recipes and the same cause:\n"
    )
    yield "| recipes | cause | repaired by |"
    yield "|---|---|---|"
    for recipes, cause, number, _ in FIXES:
        yield f"| {recipes} | {cause} | [#{number}]({PULL}{number}) |"
    yield ""


def page(rows: Sequence[Row], reproduced: Mapping[str, Mapping[str, str]]) -> str:
    """The whole page, in Markdown."""
    bridge = [row for row in rows if row["project"] == "Megatron-Bridge"]
    parts = [
        HEAD,
        "\n".join(_counts(rows)),
        "\n".join(_fixes(bridge)),
        "\n".join(_refusals(rows, reproduced)),
        "\n".join(_open(rows)).rstrip(),
    ]
    return "\n".join(parts) + "\n"


def table(rows: Sequence[Row]) -> str:
    """Every recipe that was priced, for the README of the example."""
    return "\n".join((README, *_recipes(rows))).rstrip() + "\n"


def _projects(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["project"]), []).append(row)
    return found


def _counts(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Counts\n"
    yield "| project | commit | recipes | starts | fit | does not start | undecided | priced |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for project, own in _projects(rows).items():
        verdicts = Counter(row["verdict"] for row in own)
        fits = sum(row["verdict"] == "starts" and row.get("fits") is True for row in own)
        priced = sum("step_s" in row for row in own)
        link = f"[{str(own[0]['commit'])[:8]}]({_tree(own[0])})"
        numbers = (len(own), verdicts["starts"], fits, verdicts["does not start"])
        cells = " | ".join(map(str, (*numbers, verdicts["undecided"], priced)))
        yield f"| {project} ({own[0]['licence']}) | {link} | {cells} |"
    yield ""


def _tree(row: Row) -> str:
    return f"https://github.com/{row['repository']}/tree/{row['commit']}"


def _refusals(rows: Sequence[Row], reproduced: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield "## Refused\n"
    yield "| recipe | cause | seen in the runtime's own validation |"
    yield "|---|---|---|"
    for row in rows:
        if row["verdict"] == "does not start":
            seen = reproduced.get(str(row["project"]), {}).get(str(row["recipe"]), "not on a CPU")
            yield f"| {_link(row)} | {_cell(row['says'])} | {_cell(seen)} |"
    yield ""


def _open(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Undecided, by cause\n"
    yield "| project | cause | recipes | such as |"
    yield "|---|---|---:|---|"
    for project, own in _projects(rows).items():
        left = [row for row in own if row["verdict"] == "undecided"]
        for cause, count in Counter(str(row.get("cause")) for row in left).most_common():
            one = next(row for row in left if str(row.get("cause")) == cause)
            yield f"| {project} | `{cause}` | {count} | {_cell(one.get('says', ''))} |"
    yield ""


def _recipes(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Priced\n"
    for project, own in _projects(rows).items():
        yield f"### {project}\n"
        yield "| recipe | GPUs | layout | step, s | like | fits | ours | our layout |"
        yield "|---|---|---|---|---|---|---|---|"
        for row in own:
            if "step_s" in row and row["verdict"] != "does not start":
                yield _priced(row)
        yield ""


def _priced(row: Row) -> str:
    chance, best, own = row.get("fit_chance"), row.get("best_s"), row["step_s"]
    fits = {True: "yes", False: "no", None: "a part"}[row.get("fits")]  # type: ignore[index]
    fits += "" if chance is None else f" ({chance:.0%})"  # type: ignore[str-bytes-safe]
    step = f"{own} ({row.get('step_low_s')} to {row.get('step_high_s')})"
    ratio = f"{float(str(best)) / float(str(own)):.2f}" if best and row.get("fits") else ""
    ours = ratio or (f"{best} s" if best else "none found")
    cells = (
        _link(row),
        f"{row['gpus']} {row['gpu']}",
        row["layout"],
        step,
        row.get("like", ""),
        fits,
        ours,
        row.get("best_layout", "") or "",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _link(row: Row) -> str:
    url = f"https://github.com/{row['repository']}/blob/{row['commit']}/{row['path']}"
    return f"[{row['recipe']}]({url})"


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|")
