"""The keys of a launch of another project: its files, those they are joined to, its KEY=VALUE."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from trainplan.planner.formats import document_of, format_of
from trainplan.planner.shell import Launch, Place, Word

DEEPEST = 12
"""Sections inside one another, and values that name others."""
MOST_KEYS = 20_000
LONGEST = 2_000
"""Entries of a list that is a value, and characters of a name."""
LARGEST = 10**15
"""Of a whole number."""
MOST_FILES = 16
"""Files that a configuration is joined to."""
SUFFIXES = (".yaml", ".yml", ".toml", ".json")
MOST_FOLDERS = 7
"""Above a configuration, in which a repository may begin."""
FOLDERS = ("config_path", "config_dir", "conf_dir")
QUOTES = "'\""
FRAGMENTS = ("", "hydra", "model_shape")
"""Formats of files that are parts of another."""
BASES = ("defaults", "base_config", "extends", "includes")
"""Keys that name the files which a document stands on."""
REFERENCE = re.compile(r"\$\{([^{}$]*)\}")
OVERRIDE = re.compile(r"([+~]{0,2})([A-Za-z_][\w./-]*)=(.*)", re.DOTALL)
Keys = dict[str, Word]
"""Values by their names: sections joined by points, hyphens as underlines."""


def keys_of(launch: Launch, name: str, text_of: Callable[[str], str | None]) -> Keys:
    """Keys of a launch of a format; later ones stand for earlier ones."""
    found: Keys = {}
    if launch.document:
        found |= flat(launch.document, launch.program.place)
        found = _joined(found, launch.document, launch.program.text, text_of) | found
    for file in _files(launch):
        text = text_of(file)
        documents = document_of(text, PurePosixPath(file).suffix) if text else ()
        if documents and format_of(documents[0]) in (name, *FRAGMENTS):
            own = flat(documents[0], Place(file, None))
            found |= _joined(own, documents[0], file, text_of) | own
    found |= _options(launch)
    found |= {f"{'' if '.' in k else 'env.'}{k}": w for k, w in launch.environment.items()}
    variables = {k: w.text for k, w in launch.environment.items()}
    return {key: _resolved(key, word, found, variables) for key, word in found.items()}


def _files(launch: Launch) -> Iterator[str]:
    """Files that a command is or names: its program in Python, and configurations."""
    options = _options(launch)
    words = {name: options[name].text for name in (*FOLDERS, "config_name") if name in options}
    named = (words[one].strip(QUOTES) for one in FOLDERS if one in words)
    folder = next((f"{one}/" for one in named if not one.endswith(SUFFIXES)), "")
    if launch.program.text.endswith(".py"):
        yield launch.program.text
    if "config_name" in words:
        name = words["config_name"].strip(QUOTES)
        yield folder + (name if name.endswith(SUFFIXES) else f"{name}.yaml")
    for at, word in enumerate(launch.arguments):
        text = word.text.partition("=")[2] if word.text.startswith("--") else word.text
        text = text.strip(QUOTES)
        if text == "-d" and at + 1 < len(launch.arguments):
            folder = f"{launch.arguments[at + 1].text}/"
        elif text.endswith(SUFFIXES):
            known = not word.unresolved and "$" not in text
            yield folder + text if known else text.rpartition("/")[2]


def _options(launch: Launch) -> Keys:
    """Words KEY=VALUE, and options with what follows them."""
    found: Keys = {}
    words = list(launch.arguments)
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if match := OVERRIDE.fullmatch(word.text):
            found[_spelled(match[2])] = replace(word, text=match[3])
        elif name.startswith("--") and len(name) > 2:
            following: list[Word] = []
            for one in words[at + 1 :]:
                open_end = bool(following) and (
                    bool(one.unresolved) or following[0].text.isdigit() > one.text.isdigit()
                )
                if one.text.startswith("--") or OVERRIDE.fullmatch(one.text) or open_end:
                    break
                following.append(one)
            if equals:
                found[_spelled(name[2:])] = replace(word, text=value)
            elif following:
                open_words = tuple(u for one in following for u in one.unresolved)
                texts = [one.text for one in following]
                text = texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"
                found[_spelled(name[2:])] = Word(text, word.place, open_words)
            else:
                found[_spelled(name[2:])] = replace(word, text="true")
    return found


def _joined(
    own: Keys, document: Mapping[str, Any], file: str, text_of: Callable[[str], str | None]
) -> Keys:
    """Keys of the files that a document names as its base, the nearest last."""
    found: Keys = {}
    queue, seen = list(_bases(document, file)), {file}
    while queue and len(seen) < MOST_FILES:
        base = queue.pop(0)
        text = None if base in seen else text_of(base)
        seen.add(base)
        documents = document_of(text, PurePosixPath(base).suffix) if text else ()
        if documents:
            found = flat(documents[0], Place(base, None)) | found
            queue += _bases(documents[0], base)
    return found


def _bases(document: Mapping[str, Any], file: str) -> Iterator[str]:
    """Files that a document stands on: of Hydra, OmegaConf and MaxText."""
    stated = next((document[one] for one in BASES if one in document), None)
    folder = PurePosixPath(file).parent
    for one in stated if isinstance(stated, list) else [stated]:
        name = _group(one) if isinstance(one, dict) else one
        if isinstance(name, str) and name != "_self_" and "$" not in name:
            yield _plain_path(folder / (name if name.endswith(SUFFIXES) else f"{name}.yaml"))


def _group(one: Mapping[Any, Any]) -> str | None:
    """The file of an entry `group: choice` of Hydra."""
    if len(one) != 1:
        return None
    [(group, choice)] = one.items()
    return f"{str(group).removeprefix('override ')}/{choice}"


def preset_keys(
    templates: Sequence[str], keys: Keys, file: str, text_of: Callable[[str], str | None]
) -> Keys:
    """Keys of files that `folder/{section.*.key}` names, below a folder above the configuration."""
    found: Keys = {}
    for template in templates:
        folder, _, pattern = template.rstrip("}").partition("{")
        wanted = re.compile(re.escape(pattern).replace(r"\*", "[^.]+"))
        words = [word for key, word in keys.items() if wanted.fullmatch(key)]
        for word in (one for one in words if not one.unresolved and one.text.endswith(SUFFIXES)):
            found |= _found_above(f"{folder}{word.text}", text_of)
    return found


def _found_above(name: str, text_of: Callable[[str], str | None]) -> Keys:
    """Keys of a file, and of those that it stands on."""
    for above in range(MOST_FOLDERS):
        file = "../" * above + name
        text = text_of(file)
        documents = document_of(text, PurePosixPath(name).suffix) if text else ()
        if documents:
            own = flat(documents[0], Place(name, None))
            return _joined(own, documents[0], file, text_of) | own
    return {}


def _plain_path(path: PurePosixPath) -> str:
    """Without `..` where a folder stands before it."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] not in ("..", "/"):
            parts.pop()
        else:
            parts.append(part)
    return str(PurePosixPath(*parts))


def flat(document: Mapping[str, Any], place: Place) -> Keys:
    """Every value of a document by its whole name, as far as a configuration goes."""
    found: Keys = {}
    waiting: list[tuple[str, Mapping[str, Any], int]] = [("", document, 0)]
    while waiting and len(found) < MOST_KEYS and len(waiting) < MOST_KEYS:
        under, section, depth = waiting.pop(0)
        for key, value in list(section.items())[:MOST_KEYS]:
            name = f"{under}{_spelled(str(key))}"
            if isinstance(value, Mapping) and depth < DEEPEST:
                waiting.append((f"{name}.", value, depth + 1))
            elif (text := _text(value)) is not None:
                found[name] = Word(text, place)
    return found


def _spelled(name: str) -> str:
    return name[:LONGEST].replace("-", "_").replace("/", ".")


def _text(value: object, depth: int = 0) -> str | None:
    """A value as a word; null: it is none, or longer than any that is read."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        if depth > 1 or len(value) > LONGEST:
            return None
        texts = [_text(one, depth + 1) for one in value]
        return None if None in texts else f"[{','.join(map(str, texts))}]"
    if isinstance(value, int) and abs(value) > LARGEST:
        return None
    return str(value) if isinstance(value, str | int | float) else None


def _resolved(key: str, word: Word, keys: Keys, variables: Mapping[str, str]) -> Word:
    """With what its `${...}` stand for; what only a run would tell stays, and is named so."""
    text = word.text
    for _ in range(DEEPEST):
        match = REFERENCE.search(text)
        if match is None:
            return replace(word, text=text)
        value = _referred(match[1].strip(), key, keys, variables)
        if value is None:
            break
        text = text[: match.start()] + value + text[match.end() :]
    return replace(word, text=text, unresolved=(word.text,))


def _referred(inner: str, key: str, keys: Keys, variables: Mapping[str, str]) -> str | None:
    """What stands for `a.b`, `.b`, `multiply:2,3`, `oc.env:NAME,default` or `NAME:default`."""
    name, colon, rest = inner.partition(":")
    if name in ("multiply", "mul", "divide", "div"):
        parts = [one.strip() for one in rest.split(",")]
        if len(parts) != 2 or not all(re.fullmatch(r"\d{1,12}", one) for one in parts):
            return None
        first, second = map(int, parts)
        if name in ("multiply", "mul"):
            return str(first * second)
        return str(first // second) if second else None
    if name in ("oc.env", "env"):
        name, comma, default = rest.partition("," if "," in rest else ":")
        return variables.get(name.strip(), default.strip() if comma else None)
    if colon:
        return variables.get(name, rest)
    if name.startswith("."):
        up = len(name) - len(name.lstrip("."))
        base = key.split(".")[:-up]
        name = ".".join([*base, name.lstrip(".")])
    found = keys.get(_spelled(name)) or keys.get(_spelled(name.partition(".")[2]))
    return variables.get(name) if found is None else found.text
