"""Every licence of the catalogue has a source, or is said to be unknown; `hopstate datasets NAME` says so."""

from __future__ import annotations

import pytest

from hopstate.cli.main import main
from hopstate.datasets.catalogue import CATALOGUE
from hopstate.datasets.entry import UNKNOWN, Dataset


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_a_licence_has_a_source_or_is_unknown(entry: Dataset) -> None:
    assert (entry.licence == UNKNOWN) == (not entry.read_at)
    assert entry.sizes_at or not entry.nodes
    assert entry.reachable
    assert not {"not checked", "not stated"} & {entry.licence, entry.read_at}
    for source in (entry.read_at, entry.sizes_at):
        assert not source or source.startswith(("http", "LICENSE", "hopstate.", "tgb/", "torch-geometric 2"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ogbn-arxiv", ("licence    unknown", "read_at    unknown", "https://ogb.stanford.edu/docs/nodeprop/")),
        ("coco-sp", ("CC BY 4.0", "lrgb#license-information")),
        ("tgbl-wiki", ("licence    unknown", "is dead", "py-tgb 2.3.0")),
        ("uci", ("MIT or Apache 2.0", "openreview.net")),
    ],
)
def test_what_was_read_where_is_shown(name: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", name]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words)
