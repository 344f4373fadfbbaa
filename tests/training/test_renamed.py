"""Settings under their former names."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopstate.errors import ConfigError, HopstateWarning
from hopstate.methods import MODULES, get_method
from hopstate.methods.parser import parser_of
from hopstate.methods.settings import config_from, parse_words
from hopstate.training.renamed import RENAMED, former_names, with_todays_names
from hopstate.training.run_folder import RunFolder


def words_of(*words: str):
    method = get_method("ctdg-ssm")
    return parse_words(method, parser_of(method), ["--data", "x", *words])({})


def test_no_former_name_is_a_setting_and_todays_are():
    parsers = [parser_of(get_method(name)) for name in MODULES]
    known = {key for parser in parsers for key in parser.keys()}  # noqa: SIM118 - no mapping
    assert not known & RENAMED.keys()
    assert known >= set(RENAMED.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"loop": {"products": "high", "seed": 1}, "truncate": 3},
        {"loop.products": "high", "truncate": 3, "loop.seed": 1},
    ],
)
def test_former_names_are_read_from_settings(settings):
    given = {**settings, "data": "x"}
    with pytest.warns(HopstateWarning, match="truncate is called tbptt_window now") as told:
        config = config_from(get_method("ctdg-ssm"), given)
    assert (config.tbptt_window, config.loop.matmul_precision, config.loop.seed) == (3, "high", 1)
    assert "loop.products is called loop.matmul_precision now" in str(told[0].message)
    assert given == {**settings, "data": "x"}  # what was given stays


def test_words_and_files_are_read(tmp_path: Path):
    file = tmp_path / "own.yaml"
    file.write_text("truncate: 3\nloop: {products: high, seed: 1}\nmodel:\n  max_norm: null\n")
    for words in (
        ["--truncate", "3", "--loop.products=high", "--loop.seed=1"],
        ["--config", str(file)],
        [f"--config={file}"],
    ):
        with pytest.warns(HopstateWarning, match="tbptt_window now"):
            config = words_of(*words)
        assert (config.tbptt_window, config.loop.matmul_precision, config.loop.seed) == (3, "high", 1)
    with pytest.warns(HopstateWarning, match=r"own\.yaml.*tbptt_window"):
        config = words_of("--config", str(file), "--tbptt_window", "7")  # later words stand over the file
    assert config.tbptt_window == 7
    assert config.loop.matmul_precision == "high"
    with pytest.warns(HopstateWarning, match="tbptt_window"):
        assert words_of("--tbptt_window", "7", "--config", str(file)).tbptt_window == 3


def test_a_wrong_value_names_the_file_and_todays_name(tmp_path: Path):
    file = tmp_path / "own.yaml"
    file.write_text("truncate: many\n")
    with pytest.warns(HopstateWarning), pytest.raises(ConfigError, match=r"tbptt_window.*own\.yaml"):
        words_of("--config", str(file))


def test_both_names_are_refused():
    with pytest.raises(ConfigError, match="leave truncate out"):
        with_todays_names({"truncate": 3, "tbptt_window": 4}, "own.yaml")


def test_a_method_of_ones_own_keeps_its_settings(tmp_path: Path):
    assert not former_names({"truncate": 3}, {"truncate", "tbptt_window"})
    assert not former_names({"truncate": 3}, {"dim"})  # no setting here, by either name
    run = RunFolder(tmp_path)
    run.write_json("config.json", {"method": "mine:METHOD", "truncate": 3})
    assert run.settings()["truncate"] == 3
