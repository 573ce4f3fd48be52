"""Tables that read the keys of other projects, one file a project and engine, in `tables`.

A rule is `key={}` where the value of the key is taken, `key=value|other` where it must be one of
these, as a pattern; `&` joins rules that must all hold; `key={} * other={}` computes of whole
numbers. Of several rules the first that holds counts. An option may stand with its value:
`--normalization RMSNorm`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources

from trainplan.planner.runtimes.key_tables import key_table
from trainplan.planner.runtimes.megatron_bridge.read_keys import NOTHING, plain
from trainplan.planner.shell import Launch, Place, Word

Rules = Mapping[str, Sequence[str]]
"""Of every name the rules that state it."""
VALUE = "{}"
NUMBER = r"\d{1,12}(\.0)?"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """How the keys of one project are read."""

    source: str
    """Repository, commit and files in which every key was looked up."""
    priced_as: str
    """The runtime of ours that is nearest."""
    called: str
    """As a sentence names its engine."""
    when: Sequence[str] = ()
    """Rules, one of which holds where this engine runs; none: it is the only one, or the last."""
    like: str = ""
    """Name of a table whose rules it has as well."""
    config: Rules = field(default_factory=dict)
    """Keys of a Hugging Face configuration of the model: its shape."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Presets that other names of models stand for, by patterns."""
    core: bool = False
    """Does its engine have the rules of Megatron-Core for degrees and shapes?"""
    lift: Sequence[str] = ()
    """Beginnings of keys that are left out, as patterns."""
    writes: str = ""
    """The table of `key_tables` that writes its keys, read as well."""
    own_names: str = ""
    """`dest`: keys are the names that Megatron-LM has in its code; `flag`: those of its options."""
    options: Rules = field(default_factory=dict)
    """Options of Megatron-LM, or fields of ours where no Megatron is near."""
    places: Rules = field(default_factory=dict)
    """`model`, `nodes`, `gpus`, `ranks`, `dp`, `accumulation`, `batch_tokens` and the like."""
    adapted: Rules = field(default_factory=dict)
    """Modules that have adapters; none: all."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Values of keys where nothing is said and the project's default is not that of the runtime."""
    silent: Sequence[str] = ()
    """Patterns of keys that move no price, though they look like it."""
    presets: Sequence[str] = ()
    """Files that values of keys name, below some folder above the configuration."""
    gpu_in_path: bool = False
    """May a folder of its path name the GPU?"""
    notes: Sequence[str] = ()
    """What the price leaves out."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What it leaves out where a rule holds."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why nothing is priced, where a rule holds."""
    shares_ranks: bool = False
    """May some of its ranks do something else than train?"""

    @property
    def of_megatron(self) -> bool:
        """Do its rules name options of Megatron-LM, rather than fields of ours?"""
        return bool(self.own_names or self.writes) or any(n.startswith("--") for n in self.options)

    def rules(self) -> Rules:
        """Of options, with those of the table that writes them."""
        if not self.writes:
            return self.options
        table = key_table(self.writes)
        written = {flag: _of_templates(templates) for flag, templates in table.keys.items()}
        return {
            **self.options,
            **{f: rules for f, rules in written.items() if f not in self.options},
        }

    def usual(self) -> Mapping[str, Word]:
        """Values where nothing is said."""
        stated: dict[str, str] = {}
        if self.writes:
            for templates in key_table(self.writes).absent.values():
                for key, _, value in (one.lstrip("+").partition("=") for one in templates):
                    stated[key] = {"false": "true", "true": "false"}[value]
        stated |= {key: str(v).lower() for key, v in self.defaults.items()}
        return {key: Word(value, DEFAULT) for key, value in stated.items()}


DEFAULT = Place("default", None)
"""Where what nothing says stands."""


def _of_templates(templates: Sequence[str]) -> Sequence[str]:
    """Rules of what an exporter writes: each value counts, and literals together."""
    bare = [one.lstrip("+").replace('"', "").replace("[{}]", VALUE) for one in templates]
    valued = [one for one in bare if VALUE in one]
    return valued or [" & ".join(bare)] if bare else []


@cache
def tables() -> Mapping[str, tuple[Table, ...]]:
    """Tables by format, in the order in which they are tried."""
    folder = resources.files(__package__).joinpath("tables")
    found: dict[str, list[tuple[str, Table]]] = {}
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name.endswith(".toml"):
            name, _, engine = entry.name.removesuffix(".toml").partition("-")
            stated_here = tomllib.loads(entry.read_text("utf-8"))
            if base := stated_here.get("like"):
                text = folder.joinpath(f"{base}.toml").read_text("utf-8")
                stated_here = tomllib.loads(text) | stated_here
            table = Table(**stated_here)
            found.setdefault(name, []).append((engine, table))
    return {
        name: tuple(one for _, one in sorted(all_of, key=lambda pair: not pair[1].when))
        for name, all_of in found.items()
    }


def stated(rules: Sequence[str], keys: Mapping[str, Word]) -> tuple[str, Word] | None:
    """The key and the value of the first rule that holds; of literals the word that says it."""
    return next((found for rule in rules if (found := _of_rule(rule, keys)) is not None), None)


def _of_rule(rule: str, keys: Mapping[str, Word]) -> tuple[str, Word] | None:
    first, *more = re.split(r" (\+|-|\*|//) ", rule)
    parts = [one.strip().partition("=") for one in first.split("&")]
    found = [(key, keys.get(key), wanted) for key, _, wanted in parts]
    if not all(word is not None and _holds(word, wanted) for _, word, wanted in found):
        return None
    key, word, _ = next((one for one in found if one[2] == VALUE), found[0])
    assert word is not None
    for operator, other in zip(more[::2], more[1::2], strict=True):
        one = count(word)
        two = int(other) if other.isdigit() else count(keys.get(other.partition("=")[0]))
        if one is None or not two:
            return None
        word = moved(
            word,
            str(
                {"+": one + two, "-": one - two, "*": one * two, "//": max(1, one // two)}[operator]
            ),
        )
    return key, word


def _holds(word: Word, wanted: str) -> bool:
    text = plain(word.text)
    if wanted == VALUE:
        return bool(word.unresolved) or text.lower() not in (*NOTHING, "[]")
    return text == plain(wanted) or re.fullmatch(wanted, text, re.IGNORECASE) is not None


def lifted(table: Table, keys: Mapping[str, Word]) -> dict[str, Word]:
    """Keys without the beginnings that are left out; a key that stands so already is the last."""
    found: dict[str, Word] = {}
    for key, word in keys.items():
        found[next((s for one in table.lift if (s := re.sub(one, "", key)) != key), key)] = word
    return found


def mentioned(table: Table) -> Iterator[str]:
    """Keys that some rule asks for."""
    rules_of = (table.rules(), table.places, table.config, table.adapted)
    everywhere = (rules for one in rules_of for rules in one.values())
    for rules in (*everywhere, table.when, tuple(table.left_out), tuple(table.refused)):
        for rule in rules:
            parts = re.split(r" (?:&|\+|-|\*|//) ", rule)
            yield from (part.strip().partition("=")[0] for part in parts)


def count(word: Word | None) -> int | None:
    """A whole number that a word says; null: it says none."""
    if word is None or word.unresolved or not re.fullmatch(NUMBER, plain(word.text), re.ASCII):
        return None
    return int(float(plain(word.text)))


def ranks_stated(table: Table, keys: Mapping[str, Word], launch: Launch, inner: int) -> Launch:
    """With the nodes, GPUs or ranks that keys say, where the command does not."""
    nodes, gpus, ranks, dp = (
        found[1] if (found := stated(table.places.get(name, ()), keys)) else None
        for name in ("nodes", "gpus", "ranks", "dp")
    )
    replicas = count(dp)
    if replicas and dp is not None and ranks is None:
        ranks = moved(dp, str(replicas * inner))
    by_command = launch.nodes and not (launch.alone or table.shares_ranks)
    if not (nodes or gpus or ranks) or by_command:
        return launch
    starter = "python" if launch.starter in ("torchrun", "deepspeed") else launch.starter
    return replace(launch, starter=starter, nodes=nodes, gpus_per_node=gpus, ranks=ranks)


RANKS_OPEN = "the number of ranks is not stated in what was read: give --cluster NODESxGPUS:GPU"


def moved(word: Word, text: str) -> Word:
    """Another text in the same place."""
    return replace(word, text=text, unresolved=())
