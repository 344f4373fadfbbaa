"""Parse configurations from run folders, Python dicts and the command line.

Settings are parsed once. The caller then reads the data, lets `Method.auto_config` choose settings that the user did
not give, and builds the final configuration from both.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, get_loader, set_dumper, set_loader

from hopstate.errors import ConfigError, FormatError, closest
from hopstate.io.opening import exists, read_text, reading, shorten
from hopstate.methods.method import AnyMethod, Method, RunConfig, RunT
from hopstate.training.run_folder import flatten, plain_setting

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


def hint(message: str, options: Sequence[str]) -> str:
    """Return the suggestion that follows a parser error: the closest option, or a pointer to --help.

    Args:
        message: the parser's error. The result is empty if it does not name an unknown option.
        options: dotted names of all options.
    """
    unknown = re.search(r"nrecognized arguments: --([\w.-]+)", message)
    in_group = re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message)
    if not unknown and not in_group:
        return ""
    name = unknown[1] if unknown else f"{in_group[1]}.{in_group[2]}" if in_group else ""
    matches = [key for key in options if key.replace("-", "_") == name.replace("-", "_")]
    suggestion = matches[0] if matches else closest(name, options)
    if suggestion is None:  # of another group
        by_last_name = {key.rsplit(".", 1)[-1]: key for key in reversed(options)}
        suggestion = by_last_name.get(closest(name.rsplit(".", 1)[-1], by_last_name) or "")
    return f"; did you mean '{'--' if unknown else ''}{suggestion}'?" if suggestion else "; --help lists all options"


def in_words(message: str) -> str:
    """Return a parser's type error in plain words. Other messages are unchanged.

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
    single = re.fullmatch(rf"(?P<name>[\w.]+): Expected a (?P<types>{_TYPE})\. Got value:(?P<value>.*)", message)
    several = re.fullmatch(
        rf"(?P<name>[\w.]+): Does not validate against any of the Union subtypes Subtypes: "
        rf"\[(?P<types>(?:(?:{_TYPE})(?:, )?)+)\] Errors: .* Given value:(?P<value>.*)",
        message,
    )
    match = single or several
    if not match:
        return message
    expected = []
    for type_ in re.findall(_TYPE, match["types"]):
        if type_.startswith("typing"):
            expected += type_.partition("[")[2].removesuffix("]").split(", ")
        else:
            word = re.sub(r"<class '|'>|\[.*", "", type_)
            expected.append(_WORDS.get(word, word))
    listed = " or ".join(filter(None, (", ".join(expected[:-1]), expected[-1])))
    return f"{match['name']} must be {listed}; got {shorten(match['value'].strip())!r}"


SETTINGS_BYTES, DEEPEST = 1 << 20, 50  # of a file of settings: bytes, and lists and mappings in each other
_OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    """Parse YAML or JSON. Numbers are parsed as jsonargparse does.

    Raises:
        yaml.YAMLError: the text is not valid YAML, is too large or too deeply nested, has an alias or a duplicate key,
        or names a class to import.
    """
    if len(text) > SETTINGS_BYTES:
        raise yaml.YAMLError(f"{len(text):,} characters are more than settings take")
    try:
        _check_yaml(text)
        tree = get_loader("yaml")(text)
    except (ValueError, OverflowError, TypeError) as error:  # dates and numbers that cannot be, keys that are lists
        raise yaml.YAMLError(str(error)) from None
    if isinstance(tree, dict) and _names_class(tree):
        raise yaml.YAMLError("class_path names code to import, which no setting takes")
    return tree


def _check_yaml(text: str) -> None:
    """Raise YAMLError for aliases, deep nesting, and octal or base-60 numbers.

    Deep nesting would overflow libyaml's recursion and crash the process.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not supported, because they can expand to large documents")
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _OTHER_BASE.fullmatch(event.value):
            raise yaml.YAMLError(f"{event.value} is a number to base 8 or 60 in YAML: write it to base 10, or quote it")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError("it is nested too deep")
    _check_keys(yaml.compose(text, Loader=_LOADER))


def _check_keys(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.YAMLError(f"the key {shorten(key.value)!r} occurs twice, line {key.start_mark.line + 1}")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            _check_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_keys(value)


def _names_class(tree: dict[Any, Any]) -> bool:
    return "class_path" in tree or any(isinstance(value, dict) and _names_class(value) for value in tree.values())


set_loader("hopstate", load_yaml, (yaml.YAMLError,))
set_dumper("hopstate", lambda tree: yaml.safe_dump(tree, default_flow_style=False, sort_keys=False))


def _settings_files(args: Sequence[str]) -> list[str]:
    named = [after for arg, after in pairwise(args) if arg == "--config"]
    named += [arg.partition("=")[2] for arg in args if arg.startswith("--config=")]
    return [name for name in named if exists(name)]


def _check_group(parser: Parser, name: str, value: object, *, word: bool = False) -> None:
    """Raise ConfigError if a group of settings gets a single value, which jsonargparse would import as a class.

    Args:
        parser: parser of the group.
        name: dotted name of a setting.
        value: its value from a file or the command line.
        word: the value comes from the command line. It may then be a mapping such as {x: 1}, or only the group's kind.
    """
    keys = parser.keys()
    if not any(key.startswith(f"{name}.") for key in keys) or value == {}:
        return
    kind = f"{name}.kind" in keys and isinstance(value, str) and re.fullmatch(r"[\w-]+", value)
    if word and kind:
        return
    if word and isinstance(value, str) and value.startswith("{"):
        try:
            inside = load_yaml(value)
        except yaml.YAMLError:
            inside = None
        if isinstance(inside, dict):
            for inner, one in flatten(inside).items():
                _check_group(parser, f"{name}.{inner}", one)
            return
    such = f"kind {value}" if kind else "x 1"
    raise ConfigError(
        f"{name} is a group of settings, such as --{name}.{such}; got {shorten(value)!r}{parser.given_in()}"
    )


def _checked_settings(parser: Parser, path: str) -> str:
    """Return the path of a settings file.

    Raises:
        ConfigError: the path is not a readable YAML file of settings.
    """
    with reading(path, "settings", ConfigError):
        try:
            tree = load_yaml(read_text(path, max_bytes=SETTINGS_BYTES))
        except (FormatError, OSError) as error:
            raise ConfigError(f"{error}") from None
        if not isinstance(tree, dict):
            raise ConfigError(f"{path} holds {type(tree).__name__}, not settings such as 'model: {{dim: 64}}'")
        for name, value in flatten(tree).items():
            if isinstance(name, str):
                _check_group(parser, name, value)
    return path


# short option → settings; the first one that the method has is used
SHORT_OPTIONS = {
    "--epochs": ("--loop.epochs",),
    "--lr": ("--loop.optim.lr",),
    "--seed": ("--loop.seed",),
    "--device": ("--loop.device",),
    "--features": ("--read.features",),
    "--labels": ("--read.labels",),
    "--batch-size": ("--batch_size", "--batching.batch_size"),
}


class Parser(ArgumentParser):
    """A jsonargparse parser that raises ConfigError and suggests the closest option."""

    _settings: Sequence[str] = ()  # files of settings that were given

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise ConfigError in place of printing usage and leaving."""
        raise ConfigError(f"{self._plain(message)}{hint(message, self.keys())}{self.given_in()}") from ex

    def given_in(self) -> str:
        """Return " (with the settings of FILE)" if a settings file was given, otherwise ""."""
        files = ", ".join(self._settings)
        return f" (with the settings of {files})" if files else ""

    def _plain(self, message: str) -> str:
        return in_words(re.sub(r"\s+", " ", re.sub(r"^Parser key \"?'?([\w.]+)'?\"?:", r"\1:", message)).strip())

    def parse_args(self, args: Sequence[str] | None = None, *more: Any, **settings: Any) -> Namespace:
        """Parse arguments. A boolean may stand alone, and so may the kind of a group: --freeze, --batching top."""
        if args is not None:
            self._check_short_options(args)
            self._settings = [_checked_settings(self, path) for path in _settings_files(args)]
            for arg, after in zip(args, [*args[1:], ""]):
                if arg.startswith("--"):
                    _check_group(self, *((arg[2:], after) if "=" not in arg else arg[2:].split("=", 1)), word=True)
            kinds = {f"--{key.removesuffix('.kind')}" for key in self.keys() if key.endswith(".kind")}
            args = [self._of_kind(arg, after, kinds) for arg, after in zip(args, [*args[1:], ""])]
            flags = {
                flag
                for flag, action in self._option_string_actions.items()
                if getattr(action, "_typehint", None) is bool
            }
            args = [
                f"{arg}=true" if arg in flags and after.startswith("-") else arg
                for arg, after in zip(args, [*args[1:], "-"])
            ]
        return super().parse_args(args, *more, **settings)

    def add_short_options(self) -> None:
        """Add the `SHORT_OPTIONS` of frequently used settings."""
        known = self._option_string_actions
        for short, names in SHORT_OPTIONS.items():
            for name in names:
                if name in known:
                    known[name].option_strings.insert(0, short)
                    known[short] = known[name]
                    break

    def _check_short_options(self, args: Sequence[str]) -> None:
        """Raise ConfigError if a short option and its setting are given with different values."""
        given: dict[str, tuple[str, str]] = {}
        for arg, after in zip(args, [*args[1:], ""]):
            name, sign, value = arg.partition("=")
            action = self._option_string_actions.get(name)
            if action is None or not SHORT_OPTIONS.keys() & set(action.option_strings):
                continue
            value = value if sign else after
            other, before = given.setdefault(action.dest, (name, value))
            if name != other and value != before:
                raise ConfigError(f"{other} {before} and {name} {value} are the same setting; give one of them")

    def _of_kind(self, argument: str, after: str, kinds: set[str]) -> str:
        name, sign, value = argument.partition("=")
        word = value if sign else after
        return f"{name}.kind{sign}{value}" if name in kinds and re.fullmatch(r"[\w-]+", word) else argument

    def keys(self) -> list[str]:
        """Return the dotted names of all options."""
        own = [action for action in self._actions if action.dest not in ("help", "config", "print_config")]
        return [[action.dest, *action.option_strings][-1].removeprefix("--") for action in own]


def parser_of(method: AnyMethod, prog: str | None = None) -> Parser:
    parser = Parser(
        prog=prog,
        description=f"{method.name}: {method.summary} ({method.source})",
        exit_on_error=False,
        allow_abbrev=False,
        parser_mode="hopstate",
    )
    parser.add_argument(
        "--config", action=ActionConfigFile, help="YAML or JSON file of settings; later flags override it"
    )
    parser.add_class_arguments(method.config, nested_key=None, fail_untyped=False)
    parser.add_short_options()
    for action in parser._actions:
        if action.dest in method.automatic:
            action.help = f"{action.help or ''} [auto]".lstrip()
    return parser


_parsers: dict[tuple[str, type], Parser] = {}  # building one takes longer than loading a small run


def shared_parser(method: AnyMethod) -> Parser:
    """Return the cached parser of a method. Callers must not modify it."""
    key = method.name, method.config
    if key not in _parsers:
        _parsers[key] = parser_of(method)
    return _parsers[key]


def arguments_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as command-line arguments."""
    flat = flatten(settings)
    return [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in flat.items()]


_LARGEST = {
    "layers": 10_000,
    "order": 1_000,
    "quadrature_nodes": 1_000,
}  # by the end of a name; other sizes of a model go up to SIZE
SIZE = 1 << 20
_COUNTS = {"bootstrap": 1_000_000, "num_negatives": 10_000_000, "num_neighbors": SIZE}  # by the last of a name's parts
_GROUPS = ("model", "tokens", "encoding", "history")  # of sizes


def config_of(method: Method[Any, RunT, Any], parsed: Namespace, parser: ArgumentParser) -> RunT:
    names = [f.name for f in dataclasses.fields(method.config)]
    try:
        _check_sizes(parsed.as_dict())  # first: settings compute tables of their sizes when they are checked
        built = parser.instantiate(parsed)
        config = method.config(**{name: built[name] for name in names})
    except ConfigError as error:
        raise ConfigError(f"{error}{parser.given_in()}" if isinstance(parser, Parser) else str(error)) from error
    # jsonargparse keeps exceptions of unions in cycles, and their frames lead to the data of the calls around them
    gc.collect(1)
    return config


def _check_sizes(tree: Mapping[str, Any]) -> None:
    """Raise ConfigError for implausible sizes before a model is built."""
    for key, value in flatten(tree).items():
        if type(value) is not int:
            continue
        if not -(2**63) <= value < 2**63:
            raise ConfigError(f"{key} must lie within 64 bits; got {shorten(value)}")
        limit = next((limit for suffix, limit in _LARGEST.items() if key.endswith(suffix)), SIZE)
        if value > limit and key.partition(".")[0] in _GROUPS:
            raise ConfigError(f"{key}={value} is a size that no model has; at most {limit:,}")
        limit = _COUNTS.get(key.rpartition(".")[2], value)
        if value > limit:
            raise ConfigError(f"{key}={value} is more than any command would end with; at most {limit:,}")


def config_from(method: Method[Any, RunT, Any], settings: Mapping[str, Any]) -> RunT:
    """Return the method's configuration from nested or dotted settings. Other settings keep their defaults.

    Raises:
        ConfigError: an unknown key (the nearest is suggested) or a value of the wrong type.
    """
    return parse_given(method, settings)({})


def parse_given(method: Method[Any, RunT, Any], given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], RunT]:
    """Return a function from default settings to the configuration. The given settings override the defaults."""
    parser = shared_parser(method)
    parsed = _parsed(parser, given)
    return lambda defaults: _config(method, parser, defaults, parsed)


def parse_words(
    method: Method[Any, RunT, Any], parser: Parser, words: Sequence[str], command_options: Sequence[str] = ()
) -> tuple[Namespace, Callable[[Mapping[str, Any]], RunT]]:
    """Return a command's own options, and a function from default settings to the configuration.

    Args:
        method: the method.
        parser: parser from `parser_of` with the command's own options added.
        words: command-line arguments.
        command_options: names of the command's own options.
    """
    if any(word.startswith("--print_config") for word in words):
        parser.parse_args(words)  # prints every setting, defaults included, and ends the command
    given = parser.parse_args(words, defaults=False)
    options = Namespace({name: given.pop(name, parser.get_default(name)) for name in command_options})
    return options, lambda defaults: _config(method, parser, defaults, given)


def _parsed(parser: Parser, settings: Mapping[str, Any]) -> Namespace:
    """Parse settings given by nested or dotted name. Settings that are not given stay unset."""
    plain = {key: plain_setting(value) for key, value in flatten(settings).items()}
    _check_plain(parser, plain)
    return parser.parse_args(arguments_of(plain), defaults=False)


def _config(method: Method[Any, RunT, Any], parser: Parser, defaults: Mapping[str, Any], given: Namespace) -> RunT:
    settings = parser.get_defaults()
    if defaults:
        settings.update(_parsed(parser, {**defaults, "data": given["data"]}))  # data has no default, and is required
    settings.update(given)
    return config_of(method, settings, parser)


def _check_plain(parser: Parser, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for unknown options and for values that are not plain."""
    known = parser.keys()
    for key, value in settings.items():
        if not isinstance(key, str) or key not in known:
            parser.error(f"unrecognized arguments: --{shorten(key)}")
        parts = value if isinstance(value, (list, tuple)) else [value]
        if not all(part is None or isinstance(part, (bool, int, float, str)) for part in parts):
            raise ConfigError(
                f"{key} takes a plain value or a list of them, not {type(value).__name__}: {shorten(value)}"
            )


def as_dict(config: RunConfig) -> dict[str, Any]:
    """Return a configuration dataclass as plain nested dicts, JSON-able."""
    return json.loads(json.dumps(dataclasses.asdict(config)))
