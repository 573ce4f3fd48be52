"""Options of the programs that start training, to tell them from those of the program they start.

Source: torch/distributed/run.py of PyTorch 2.13 and torch/distributed/launch.py;
deepspeed/launcher/runner.py of DeepSpeed edaa7221; src/accelerate/commands/launch.py of
Accelerate 16cb6eb8; python(1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainplan.planner.shell.launch import Problem, Word


@dataclass(frozen=True, slots=True)
class Options:
    """Names without leading dashes, `_` for `-`."""

    flags: frozenset[str]
    """Without a value; any other takes one."""
    valued: frozenset[str]
    short: dict[str, str]


@dataclass(frozen=True, slots=True)
class Split:
    """A command in three."""

    given: dict[str, Word]
    """By name; of a repeated option, the last value, as argparse has it."""
    others: tuple[Word, ...]
    """Words of the starter that do not count nodes or ranks."""
    program: Word | None
    is_module: bool
    arguments: tuple[Word, ...]
    problems: tuple[Problem, ...]


def names(text: str) -> frozenset[str]:
    """Names between blanks."""
    return frozenset(text.split())


COUNTS = names(
    "nnodes nproc_per_node num_nodes num_gpus num_accelerators num_machines num_processes"
)

TORCHRUN = Options(
    names("help standalone module no_python run_path virtual_local_rank use_env"),
    names(
        "nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts "
        "monitor_interval start_method event_log_handler role log_dir redirects tee "
        "local_ranks_filter duplicate_stdout_filters duplicate_stderr_filters node_rank "
        "master_addr master_port local_addr logs_specs numa_binding signals_to_handle "
        "shutdown_timeout"
    ),
    {"h": "help", "m": "module", "r": "redirects", "t": "tee"},
)

DEEPSPEED = Options(
    names(
        "help module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid "
        "elastic_training bind_cores_to_rank quiet"
    ),
    names(
        "hostfile include exclude num_nodes num_gpus num_accelerators min_elastic_nodes "
        "max_elastic_nodes master_port master_addr node_rank launcher launcher_args "
        "enable_each_rank_log autotuning bind_core_list ssh_port venv_script log_level"
    ),
    {"h": "help", "H": "hostfile", "i": "include", "e": "exclude", "q": "quiet"},
)

ACCELERATE = Options(
    names(
        "help quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph "
        "dynamo_use_dynamic dynamo_use_regional_compilation use_deepspeed use_fsdp "
        "use_parallelism_config use_megatron_lm use_xpu same_network module no_python "
        "tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 fp8_use_autocast_during_eval "
        "debug"
    ),
    names(""),
    {"h": "help", "q": "quiet", "m": "module", "t": "tee"},
)

PYTHON = Options(
    names("b bb B d E i I O OO P q s S u v V x h"),
    frozenset({"W", "X", "c", "check_hash_based_pycs"}),
    {},
)


def split(words: Sequence[Word], options: Options) -> Split:
    """What follows the name of a starter."""
    given: dict[str, Word] = {}
    others: list[Word] = []
    problems: list[Problem] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word.unresolved and word.text[:1] != "-" and _more_to_come(words[at + 1 :]):
            says = f"what {word.text} tells the starter is known only in a run: "
            says += " and ".join(f"give --set {name}=VALUE" for name in word.unresolved)
            problems.append(Problem("starter_unread", "unread", says, word.place))
            others.append(word)
            at += 1
            continue
        if word.text[:1] != "-" or word.text == "-":
            break
        at += 1
        if word.text == "--":
            break
        name, value = _named(word, options)
        taken = [word]
        if name in options.flags:
            given[name] = word
        elif value is None and at < len(words):
            value, at = words[at], at + 1
            taken.append(value)
        if value is not None:
            given[name] = value
        others += () if name in COUNTS else taken
        if options.valued and name not in options.flags | options.valued:
            says = f"no option {word.text.partition('=')[0]} of the starter: leave it out"
            problems.append(Problem("starter_option_unknown", "illegal", says, word.place))
    program = words[at] if at < len(words) else None
    arguments = tuple(words[at + 1 :])
    return Split(given, tuple(others), program, "module" in given, arguments, tuple(problems))


def _named(word: Word, options: Options) -> tuple[str, Word | None]:
    """An option's name in full, and the value that is written in the same word."""
    text, equals, value = word.text.partition("=")
    of_it = Word(value, word.place, word.unresolved) if equals else None
    if not text.startswith("--"):
        letter, rest = text[1:2], word.text[2:]
        if letter in options.short:
            joined = Word(rest, word.place, word.unresolved) if rest else None
            return options.short[letter], joined
        return text[1:], of_it
    name = text.lstrip("-").replace("-", "_")
    known = options.flags | options.valued
    if name not in known and options.valued:
        longer = [full for full in known if full.startswith(name)]
        name = longer[0] if len(longer) == 1 else name
    return name, of_it


def _more_to_come(words: Sequence[Word]) -> bool:
    """Does the program still follow a word of the starter that is not known?"""
    for at, word in enumerate(words):
        if word.text.endswith(".py") and not word.text.startswith("-"):
            return True
        if word.text in ("-m", "--module"):
            return at + 1 < len(words)
    return False
