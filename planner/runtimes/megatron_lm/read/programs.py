"""Programs of forks: known by their options, read as Megatron-LM, judged by what all share."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from trainplan.planner.runtimes.megatron_lm.read.reader import read
from trainplan.planner.runtimes.megatron_lm.read.releases import dashed
from trainplan.planner.runtimes.reading import OF_RECIPE, Reading, Request
from trainplan.planner.shell import Launch, Problem, Word

SHAPE = frozenset({"--num-layers", "--hidden-size", "--num-attention-heads"})
"""Options that every launch of such a program has, but where its model stands in a file."""
IN_CHECKPOINT = "--use-checkpoint-args"
"""Its shape stands in the checkpoint that it loads."""
USUAL = frozenset(
    {
        "--tensor-model-parallel-size",
        "--pipeline-model-parallel-size",
        "--micro-batch-size",
        "--global-batch-size",
        "--seq-length",
        "--max-position-embeddings",
        "--train-iters",
        "--model-parallel-size",
        "--batch-size",
    }
)
FEW = 3
"""Of the usual options so many stand beside the shape."""
NO_TRAINING = re.compile(
    r"bert|t5|ict|vision|vit|clip|retro|retriever|biencoder|generat|eval|infer|convert|tools|tasks|"
    r"merge|preprocess|hf2|server|rollout|mamba|hybrid|multimodal|llava|internvl|audio|video|diffus|"
    r"(?:^|[_-])(?:vl|vlm|rl|rlhf|dpo|ppo|grpo|dit|asr|tts)(?:[_.-]|$)",
    re.IGNORECASE,
)
"""Programs with such options that train another model, or none."""
OTHERS = ("--rollout-", "--actor-num-", "--recipe", "--rm-type")
"""Beginnings of options of trainers with Megatron inside, which have readers of their own."""
COMMON = frozenset(
    {
        "degrees_divide_world",
        "tp_divides_heads",
        "micro_batch_divides_batch",
        "ep_divides_experts",
        "bad_value",
        "bf16_or_fp16",
        "positions_hold_sequence",
    }
)
"""What stops every fork."""
FOREIGN = frozenset({"unread_model_option", "unread_run_option"})
"""Causes of options that no release of Megatron-LM has, and that do more than write a log."""
OF_NO_STEP = frozenset({"save_needs_interval", "learning_rates", "weight_decay"})
"""Rules of what moves no step, for which forks have defaults of their own."""
STAGES = "--zero-stage"
CUT_EXPERTS = "--enable-expert-tensor-parallelism"


def _flags(launch: Launch) -> set[str]:
    return {dashed(word.text.partition("=")[0]) for word in launch.arguments}


def is_deepspeed(launch: Launch) -> bool:
    """Is it Megatron-DeepSpeed, whose program has the same name?"""
    return launch.starter == "deepspeed" or any(
        word.text.startswith("--deepspeed") for word in launch.arguments
    )


def is_of_fork(launch: Launch) -> bool:
    """Does a program of another name have the options of Megatron-LM?"""
    path, flags = PurePosixPath(launch.program.text), _flags(launch)
    if path.suffix != ".py" or NO_TRAINING.search(path.name) or {"tasks", "tools"} & {*path.parts}:
        return False
    if any(flag.startswith(OTHERS) for flag in flags):
        return False
    shaped = flags >= SHAPE or IN_CHECKPOINT in flags
    return shaped and len(flags & USUAL) >= FEW


def read_own(launch: Launch, request: Request) -> Reading:
    """A launch of its own program, which forks have as well: their options tell."""
    reading = read(launch, request)
    causes = {one.cause for one in reading.problems}
    if not request.strict and causes & {*FOREIGN, "unknown_flag"}:
        reading = replace(reading, problems=tuple(filter(_moves, reading.problems)))
    if request.strict or not FOREIGN & causes:
        return reading
    return replace(reading, problems=tuple(_of("a fork", one) for one in reading.problems))


def read_of_fork(launch: Launch, request: Request) -> Reading:
    """As Megatron-LM reads it; what it alone would stop at is no verdict on the fork."""
    own = is_deepspeed(launch)
    more = (*_zero(launch, request), *_experts(launch)) if own else ()
    words = (*launch.arguments, *more)
    reading = read(replace(launch, arguments=words), request)
    name = "Megatron-DeepSpeed" if own else PurePosixPath(launch.program.text).name
    found = (one for one in reading.problems if not _of_engine(one, own=own))
    problems = tuple(_of(name, one) for one in found if request.strict or _moves(one))
    if own:
        says = (
            "Megatron-DeepSpeed is priced as Megatron-LM with the same degrees: its pipeline, its "
            "ZeRO and what its JSON sets but the stage are not"
        )
        problems = (*problems, Problem("megatron_deepspeed", "unmodelled", says))
    return replace(reading, problems=problems)


def _of_engine(problem: Problem, *, own: bool) -> bool:
    """Is it of Megatron-FSDP, which stands for ZeRO here?"""
    return own and problem.cause.startswith(("fsdp_", "torch_fsdp2", "device_max"))


def _moves(problem: Problem) -> bool:
    """Is it more than a rule of this release that a line which is not there would satisfy?"""
    return not (problem.absent and problem.cause in OF_NO_STEP)


def _of(name: str, problem: Problem) -> Problem:
    if problem.verdict != "illegal" or problem.cause in COMMON:
        return problem
    says = f"Megatron-LM would stop, {name} may not: {problem.says}"
    return replace(problem, verdict="unread", says=says, absent=True)


def _experts(launch: Launch) -> Iterator[Word]:
    """What Megatron-DeepSpeed takes: every other layer has experts, which tp does not cut."""
    flags = _flags(launch)
    if "--num-experts" in flags:
        texts = ["--expert-interval", "2"] if "--expert-interval" not in flags else []
        texts += [] if CUT_EXPERTS in flags else ["--expert-tensor-parallel-size", "1"]
        yield from (Word(text, OF_RECIPE) for text in texts)


def _zero(launch: Launch, request: Request) -> Iterator[Word]:
    """The stage of its JSON, where the command names none."""
    words = launch.arguments
    if any(dashed(word.text).startswith(STAGES) for word in words):
        return
    for place, word in enumerate(words):
        flag, equals, value = word.text.partition("=")
        if dashed(flag) == "--deepspeed-config":
            path = value if equals else words[place + 1].text if place + 1 < len(words) else ""
            stage = _stage(request.text_of(path) or "")
            if stage is not None:
                yield from (Word(text, word.place) for text in (STAGES, str(stage)))
                return
    yield from (Word(text, OF_RECIPE) for text in (STAGES, "1"))


def _stage(text: str) -> int | None:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return None
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
    return stage if isinstance(stage, int) and 0 <= stage <= 3 else None
