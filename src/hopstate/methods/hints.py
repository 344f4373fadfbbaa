"""What a complaint of the parser says in words, and what one about an option that is none suggests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hopstate.errors import closest
from hopstate.io.opening import shown

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "NoneType": "null",
    "tuple": "a list such as [a, b]",
    "list": "a list such as [a, b]",
}  # by the class that the parser names
_TYPE = r"<class '\w+'>|typing\.Literal\[[^\]]*\]|(?:tuple|list)\[[^\[\]]*\]"


def hint(message: str, known: Sequence[str]) -> str:
    """Return what follows a parser's complaint: the nearest of the known options, or where all are listed.

    Args:
        message: the complaint; nothing follows one that names no unknown option.
        known: dotted names of options.
    """
    unknown = re.search(r"nrecognized arguments: --([\w.-]+)", message)
    inside = re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message)
    if not unknown and not inside:
        return ""
    name = unknown[1] if unknown else f"{inside[1]}.{inside[2]}" if inside else ""
    if name == "metric" and "evaluation.choose" in known:
        return (
            "; links are judged by all of their metrics, and validation chooses by average precision (MRR where "
            "evaluation.strategies begins with many): --evaluation.choose says over which pairs"
        )
    if name == "task" and any("." in key for key in known):  # of a method, not of a command that asks a run
        return "; a method has one task, and the others stand under names of their own: hopstate fit --help lists them"
    same = [key for key in known if key.replace("-", "_") == name.replace("-", "_")]
    found = same[0] if same else closest(name, known)
    if found is None:  # of another group
        last = {key.rsplit(".", 1)[-1]: key for key in reversed(known)}
        found = last.get(closest(name.rsplit(".", 1)[-1], last) or "")
    return f"; did you mean '{'--' if unknown else ''}{found}'?" if found else "; --help lists all options"


def in_words(message: str) -> str:
    """Return a parser's complaint about a value in words; any other as it stands.

    >>> in_words("loop.epochs: Expected a <class 'int'>. Got value: many")
    "loop.epochs must be a whole number; got 'many'"

    Args:
        message: in one line, the setting's name in front; of a value within a group, the group's.
    """
    inner = re.fullmatch(r"([\w.]+): Unable to load config .*? - Parser key \"(\1\.[\w.]+)\": (.*)", message)
    if inner:
        message = f"{inner[2]}: {inner[3]}"
    required = re.fullmatch(r"the following arguments are required: (.*)", message)
    if required:
        return f"{', '.join(f'--{name}' for name in required[1].split(', '))} must be given"
    one = re.fullmatch(rf"(?P<name>[\w.]+): Expected a (?P<types>{_TYPE})\. Got value:(?P<value>.*)", message)
    several = re.fullmatch(
        rf"(?P<name>[\w.]+): Does not validate against any of the Union subtypes Subtypes: "
        rf"\[(?P<types>(?:(?:{_TYPE})(?:, )?)+)\] Errors: .* Given value:(?P<value>.*)",
        message,
    )
    found = one or several
    if not found:
        return message
    words = []
    for type_ in re.findall(_TYPE, found["types"]):
        if type_.startswith("typing"):
            words += type_.partition("[")[2].removesuffix("]").split(", ")
        else:
            word = re.sub(r"<class '|'>|\[.*", "", type_)
            words.append(_WORDS.get(word, word))
    listed = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return f"{found['name']} must be {listed}; got {shown(found['value'].strip())!r}"
