"""Does a runtime know the options we write? Against a recorded list, or against its source.

Source is read with `ast`, never run. Two ways to define options are understood:
`parser.add_argument("--name", ...)`, and a group generated from a configuration class by
`ArgumentGroupFactory(Class, exclude=[...])`, where the field `some_name` becomes `--some-name`, a
switch that is on by default becomes `--no-some-name` and `--disable-some-name`, and `arg_names` in
the field's metadata take precedence. Source: Megatron-LM `megatron/training/argument_utils.py`.

A third way are sections: a field `training: TrainingConfig` of a `Config` inside a class gives
`--training` and `--training.steps` for each field of that class, and a parser by hand compares an
argument with `"--module"`. Source: torchtitan `torchtitan/config/manager.py`.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainplan.planner.launch import LaunchConfig
from trainplan.planner.runtimes.exporter import recorded
from trainplan.planner.runtimes.registry import EXPORTERS

FACTORY = "ArgumentGroupFactory"


@dataclass(frozen=True, slots=True)
class GeneratedGroup:
    """One group of options made from a class."""

    class_name: str
    excluded: frozenset[str]
    """Fields without an option."""


def flags_in_sources(texts: Iterable[str]) -> frozenset[str]:
    """Options defined in these files together.

    Classes and the groups generated from them may be in different files.

    Raises:
        SyntaxError: A text is not Python.
    """
    trees = [ast.parse(text) for text in texts]
    classes = {
        node.name: node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    classes |= {
        f"{outer.name}.{inner.name}": inner
        for outer in tuple(classes.values())
        for inner in outer.body
        if isinstance(inner, ast.ClassDef)
    }
    groups = [group for tree in trees for group in _generated_groups(tree)]
    written = {flag for tree in trees for flag in _written_flags(tree)}
    generated = {
        flag
        for group in groups
        for field in _fields(group.class_name, classes)
        if _name(field) not in group.excluded
        for flag in _field_flags(field)
    }
    sections = {flag for tree in trees for flag in _section_flags(tree, classes)}
    return frozenset(written | generated | sections)


def words_in_sources(texts: Iterable[str]) -> frozenset[str]:
    """Names of fields and texts in these files: what keys of a JSON or YAML are made of.

    Raises:
        SyntaxError: A text is not Python.
    """
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    fields = {_name(node) for node in nodes if isinstance(node, ast.AnnAssign)}
    written = (node.value for node in nodes if isinstance(node, ast.Constant))
    return frozenset({*fields, *(text.lstrip("-") for text in written if isinstance(text, str))})


def unknown_flags(runtime: str, emitted: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Options of a runtime's exporter that its sources do not define, in order.

    Raises:
        SyntaxError: A text is not Python.
    """
    exporter, sources = EXPORTERS[runtime], list(texts)
    known = flags_in_sources(sources) | exporter.of_others
    words = words_in_sources(sources) if exporter.by_words else frozenset()
    left = (flag for flag in sorted(emitted) if flag not in known)
    return [flag for flag in left if not {*flag.removeprefix("--").split(".")} <= words]


def _section_flags(tree: ast.Module, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Options of a configuration of configurations, and those compared with by hand."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared = (text for one in node.comparators for text in _strings(one))
            yield from (text for text in compared if text.startswith("--"))
        elif isinstance(node, ast.ClassDef):
            inner = (item for item in node.body if isinstance(item, ast.ClassDef))
            for section in (s for item in inner if item.name == "Config" for s in item.body):
                if isinstance(section, ast.AnnAssign):
                    yield f"--{_name(section)}"
                    fields = _fields(_last_name(section.annotation), classes)
                    yield from (f"--{_name(section)}.{_name(field)}" for field in fields)


def _written_flags(tree: ast.Module) -> Iterator[str]:
    """Options named in a call of `add_argument`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) == "add_argument":
            flags = [flag for argument in node.args for flag in _strings(argument)]
            yield from (flag for flag in flags if flag.startswith("--"))
            actions = {_last_name(k.value) for k in node.keywords if k.arg == "action"}
            if "BooleanOptionalAction" in actions:
                yield from ("--no-" + flag[2:] for flag in flags if flag.startswith("--"))


def _generated_groups(tree: ast.Module) -> Iterator[GeneratedGroup]:
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.Module)):
            lists = {
                target.id: node.value
                for node in scope.body
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for statement in scope.body:
                if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                    yield from _groups_of(statement, lists)


def _groups_of(statement: ast.stmt, lists: Mapping[str, ast.expr]) -> Iterator[GeneratedGroup]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and _last_name(node.func) == FACTORY and node.args:
            options = {keyword.arg: keyword.value for keyword in node.keywords}
            exclude = options.get("exclude", node.args[1] if len(node.args) > 1 else None)
            if isinstance(exclude, ast.Name):
                exclude = lists.get(exclude.id)
            excluded = _strings(exclude) if exclude else ()
            yield GeneratedGroup(_last_name(node.args[0]), frozenset(excluded))


def _fields(class_name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[ast.AnnAssign]:
    """Fields of a configuration class and of the classes below it that are known."""
    found = classes.get(class_name)
    if found is None:
        return
    for base in found.bases:
        dotted = ast.unparse(base)
        name = dotted if dotted in classes else _last_name(base)
        if name not in (class_name, "Config"):  # of several classes called so, not known which
            yield from _fields(name, classes)
    yield from (
        node
        for node in found.body
        if isinstance(node, ast.AnnAssign)
        and _last_name(node.annotation) != "ClassVar"
        and not _not_settable(node.value)
    )


def _not_settable(value: ast.expr | None) -> bool:
    """Is it `field(init=False)`?"""
    return isinstance(value, ast.Call) and any(
        k.arg == "init" and isinstance(k.value, ast.Constant) and k.value.value is False
        for k in value.keywords
    )


def _field_flags(field: ast.AnnAssign) -> tuple[str, ...]:
    named = _metadata_names(field.value) if field.value else ()
    if named:
        return named
    name = _name(field).replace("_", "-")
    if isinstance(field.annotation, ast.Name) and field.annotation.id == "bool":
        default = _default(field.value)
        if isinstance(default, ast.Constant) and default.value is True:
            return (f"--no-{name}", f"--disable-{name}")
    return (f"--{name}",)


def _metadata_names(value: ast.expr) -> tuple[str, ...]:
    """Options named in `field(metadata={"argparse_meta": {"arg_names": [...]}})`."""
    for node in ast.walk(value):
        if isinstance(node, ast.Dict):
            for key, item in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "arg_names":
                    return tuple(_strings(item))
    return ()


def _default(value: ast.expr | None) -> ast.expr | None:
    """Default of a field, written plainly or in `field(default=...)`."""
    if isinstance(value, ast.Call):
        return next((k.value for k in value.keywords if k.arg == "default"), None)
    return value


def _name(field: ast.AnnAssign) -> str:
    return field.target.id if isinstance(field.target, ast.Name) else ""


def _last_name(node: ast.expr) -> str:
    """`c` of `c`, `a.b.c` and `c[int]`; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _strings(node: ast.expr) -> tuple[str, ...]:
    """String constants of an expression."""
    return tuple(
        item.value
        for item in ast.walk(node)
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    )


def missing_flags(config: LaunchConfig, known: Collection[str]) -> tuple[str, ...]:
    """Options of a launch configuration that the runtime does not know, in order, once each."""
    return tuple(flag for flag in emitted_flags(config) if flag not in known)


def emitted_flags(config: LaunchConfig) -> tuple[str, ...]:
    """Options of a launch configuration, and the keys its files set as if they were some."""
    keys = (f"--{key}" for key, _ in config.keys)
    return tuple(dict.fromkeys((*(argument.flag for argument in config.arguments), *keys)))


def recorded_flags(runtime: str) -> frozenset[str]:
    """Options of the release a runtime's exporter is written for."""
    return recorded(EXPORTERS[runtime].recorded_flags)
