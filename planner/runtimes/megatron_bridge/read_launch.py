"""What a launch of Megatron-Bridge says: its words, and the recipe that they choose."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.planner.runtimes.key_tables import key_table
from trainplan.planner.runtimes.megatron_bridge.read_keys import LETTERS, SHORT, plain
from trainplan.planner.runtimes.megatron_bridge.read_recipes import Recipe, recipes
from trainplan.planner.runtimes.megatron_bridge.read_source import Sources, read_recipe
from trainplan.planner.runtimes.megatron_bridge.write_recipe import MODULE, PLANNED
from trainplan.planner.runtimes.python_source import Raised, Unread
from trainplan.planner.runtimes.ranks import is_counted
from trainplan.planner.runtimes.reading import OF_RECIPE, Request
from trainplan.planner.shell import Launch, Place, Problem, Verdict, Word

NOTHING = Word("null", OF_RECIPE)
PROGRAMS = frozenset({"run_recipe.py"})
BENCHMARKS = ("run_script.py", "setup_experiment.py")
"""Ends of programs that choose a recipe by model, GPU and format. Source: Megatron-Bridge
`scripts/performance/utils/utils.py`."""
BENCHMARKED, COUNTED = "--model_recipe_name", "--num_gpus"
NOT_TAKEN = re.compile(
    r"--(use_megatron_fsdp|nccl_ub|cuda_graph_\w+|moe_\w+|recompute_\w+|activation_offload_layers"
    r"|num_(layers|moe_experts)|hidden_size|first_k_dense_replace|pipeline_model_parallel_layout"
    r"|use_tokendrop|optimizer_type|config_variant)"
)
"""Options of theirs that move a step and are no keys here."""

OF_GPUS = re.compile(r"_\d+gpu_([a-z]+\d+)_")
"""`_64gpu_gb300_` in the name of a recipe."""
SWITCHES = frozenset(
    {
        *("--dry-run", "--dry_run", "--deterministic", "--dump-env", "--dump_env", "--dryrun"),
        *("-d", "--detach", "--use_recipes", "--offline", "-en", "--enable_nsys"),
        *("--export_nsys_sqlite", "--packed_sequence", "--head_only", "--is_long_convergence_run"),
    }
)


@dataclass(frozen=True, slots=True)
class Written:
    """What the words say."""

    named: Mapping[str, Word]
    """Values of options such as `--recipe`."""
    keys: Mapping[str, Word]
    problems: tuple[Problem, ...]


def counted_by(launch: Launch, written: Written) -> Launch:
    """With the ranks and the GPU that a benchmark says, where the command does not.

    Of a recipe that is named for a number of GPUs, the GPU of its name.
    """
    ranks, gpu = written.named.get(COUNTED), written.named.get("--gpu")
    if BENCHMARKED not in written.named:
        recipe = written.named.get("--recipe")
        of_name = OF_GPUS.search(recipe.text) if recipe else None
        if recipe is None or of_name is None or launch.gpu is not None:
            return launch
        return replace(launch, gpu=Word(of_name[1], recipe.place))
    if ranks and not is_counted(launch):
        each = written.named.get("--gpus_per_node")
        launch = replace(launch, starter="python", ranks=ranks, gpus_per_node=each)
    return replace(launch, gpu=launch.gpu or gpu)


def _benchmark(written: Written) -> tuple[str, tuple[Problem, ...]]:
    """The recipe that such options choose: of so many GPUs, else of the nearest number."""
    named = written.named
    stated = {name: plain(word.text) for name, word in named.items()}
    dtype = stated.get("--compute_dtype", "bf16").replace("_", "")
    head = f"{stated[BENCHMARKED]}_{stated.get('--task', 'pretrain')}_"
    tail = f"gpu_{stated.get('--gpu', 'h100')}_{dtype}_config"
    wanted = stated.get(COUNTED, "")
    counts = [
        int(count)
        for name in recipes()
        if name.startswith(head) and name.endswith(tail)
        if (count := name[len(head) : -len(tail)]).isdigit()
    ]
    number = int(wanted) if re.fullmatch(r"[0-9]{1,7}", wanted) else 0
    near = min(counts, key=lambda one: abs(one - number), default=number)
    problems = []
    unused = [
        name
        for name, text in stated.items()
        if NOT_TAKEN.fullmatch(name) and text.lower() not in ("false", "none", "null", "-1")
    ]
    place = named[BENCHMARKED].place
    if near != number:
        says = f"no recipe of {number} GPUs is recorded: that of {near}, with what the command sets"
        if "train.global_batch_size" not in written.keys:
            says += "; a run scales its global batch with its replicas: give --global_batch_size"
        problems.append(Problem("other_recipe", "unmodelled", says, place))
    if unused:
        says = f"not used in the price: {', '.join(unused)}"
        problems.append(Problem("unused_options", "unread", says, place))
    return f"{head}{near}{tail}", tuple(problems)


def written_of(words: Sequence[Word], *, strict: bool) -> Written:
    """Options and keys; of a repeated one the last."""
    verdict: Verdict = "illegal" if strict else "unread"
    named: dict[str, Word] = {}
    short: dict[str, Word] = {}
    keys: dict[str, Word] = {}
    problems: list[Problem] = []
    rest = iter(words)
    for word in rest:
        flag, joined, value = word.text.partition("=")
        flag = LETTERS.get(flag, flag)
        if not flag.startswith("-"):
            key = flag.lstrip("+~")
            if joined:
                keys[key] = replace(word, text=value)
            else:
                says = f"{word.text[:60]!r} is no KEY=VALUE: write one, or leave it out"
                problems.append(Problem("stray_word", verdict, says, word.place))
        elif flag not in SWITCHES:
            following = replace(word, text=value) if joined else next(rest, None)
            if following is None:
                says = f"{flag} has no value: give one"
                problems.append(Problem("missing_value", verdict, says, word.place))
            elif flag in SHORT:
                short[SHORT[flag]] = following
            else:
                named[flag] = following
    return Written(named, short | keys, tuple(problems))


def recipe_of(
    launch: Launch, written: Written, request: Request
) -> tuple[Recipe | None, tuple[Problem, ...]]:
    """What the recipe sets, by its text or as recorded; none of our own exports."""
    if launch.is_module:
        return _planned(request), ()
    stem = written.named.get("--model", written.named.get(BENCHMARKED))
    word = written.named.get("--recipe", stem)
    if word is None:
        says = "neither --recipe nor --model names the recipe: add one"
        verdict: Verdict = "illegal" if request.strict else "unread"
        return None, (Problem("missing_recipe", verdict, says, launch.program.place),)
    mode = written.named.get("--mode", NOTHING).text
    task = {"sft": "sft", "lora": "peft", "dora": "peft"}.get(mode, "pretrain")
    name = word.text if "--recipe" in written.named else f"{word.text}_{task}_config"
    notes: tuple[Problem, ...] = ()
    if word is written.named.get(BENCHMARKED):
        name, notes = _benchmark(written)
    found = read_recipe(Sources(request.text_of, _root(launch.program.text)), name)
    if isinstance(found, Raised):
        says = f"{name[:80]} stops at {found.text}: take another recipe"
        return None, (Problem("recipe_raises", "illegal", says, word.place),)
    if isinstance(found, Unread):
        says = f"what {name[:80]} sets is not read: {found.text}"
        return None, (Problem("unread_recipe", "unread", says, word.place),)
    found = found or recipes().get(name)
    if found is not None:
        return found, (*notes, *_unread(found, word, request))
    near = get_close_matches(name, recipes(), 3)
    hint = f" Near: {', '.join(near)}." if near else ""
    says = (
        f"what recipe {name[:80]!r} sets is not recorded, {len(recipes())} of pretraining are: "
        f"run this next to src/megatron/bridge of a checkout, whose text is read then.{hint}"
    )
    return None, (Problem("unknown_recipe", "unread", says, word.place),)


def _planned(request: Request) -> Recipe | None:
    """Our own export of a model that a bridge builds, which lies beside its recipe."""
    text = request.text_of(PLANNED)
    try:
        model = ModelSpec.model_validate_json(text) if text else None
    except ValidationError:
        return None
    return Recipe(MODULE, None, nested=False, keys={}, shape=model) if model else None


def _root(program: str) -> str:
    """The checkout that a program of its `scripts` is of."""
    head, found, _ = program.rpartition("scripts/")
    return head if found else ""


def _unread(recipe: Recipe, word: Word, request: Request) -> Iterator[Problem]:
    """What of a recipe is open."""
    if recipe.spec is None and request.model is None:
        says = f"its model is {recipe.trains}, which is no preset: give its config.json by --model"
        yield Problem("unread_model", "unread", says, word.place)
    table = key_table("megatron_bridge")
    known = {text.partition("=")[0] for texts in table.keys.values() for text in texts}
    for key, value in recipe.unread.items():
        if key in known | ALL_OF and key not in IDLE:
            says = f"{key} is {value.text}, known to a run alone: give {key}=VALUE"
            yield Problem("unread_value", "unread", says, Place(recipe.file, value.line or None))


ALL_OF = frozenset({"model.*", "train.*"})
"""What a function changes that is not followed."""
IDLE = frozenset(
    f"model.{name}"
    for name in (
        "cuda_graph_scope",
        "moe_hybridep_num_sms",
        "rotary_base",
        "use_te_rng_tracker",
        "use_transformer_engine_op_fuser",
        "vocab_size",
    )
)
"""Keys that recipes take from the model or switch off where it has them: none moves the price."""
