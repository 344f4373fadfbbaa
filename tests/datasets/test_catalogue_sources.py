"""Entries of the catalogue have a license with a source, sizes with a source, and an address."""

from __future__ import annotations

import pytest

from hopstate.cli.main import main
from hopstate.datasets.registry import UNKNOWN, catalogue


def test_a_license_has_a_source_or_is_unknown() -> None:
    for entry in catalogue().values():
        assert (entry.licence == UNKNOWN) == (not entry.read_at), entry.name
        assert entry.sizes_at or not entry.nodes, entry.name
        assert entry.reachable, entry.name


@pytest.mark.parametrize(("name", "source"), [("coco-sp", "lrgb#license-information"), ("uci", "openreview.net")])
def test_sources_are_shown(name: str, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", name]) == 0
    assert source in capsys.readouterr().out
