"""Tests mirror the code: a module's tests are found by its path.

`hopstate/P/m.py` is tested in `tests/P/test_m.py` (or `test_m_<aspect>.py`, or `test_<package>_m.py` where another has
that name), else by the tests of its package: any in `tests/P`, or `test_<package>.py` beside that folder.
"""

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "hopstate"
FOLDERS = {
    "benchmarks": "of the scripts in benchmarks/",
    "docs": "of the pages",
    "durability": "of every writer: kills, failing and forgetful disks",
    "hostile": "of every reader: damaged and hostile files",
}
TOPICS = {
    "test_contracts.py": "of the package as a whole",
    "test_curves.py": "loss curves of every method",
    "test_import_circles.py": "of all modules",
    "test_paths.py": "of the tests themselves",
    "test_public_surface.py": "of the package as a whole",
    "compensation/test_directed_edges.py": "GAS and TOP alike",
    "data/test_node_deletions.py": "through records, readers and pasts",
    "evaluation/test_event_order.py": "of event_classes, whose name is taken",
    "evaluation/test_others_evaluators.py": "torch-geometric's and TGB's, of every kind of model",
    "io/test_checksums.py": "of weights, arrays and caches alike",
    "layers/test_in_sequential.py": "every layer in torch-geometric's Sequential",
    "methods/baselines/test_history_leak.py": "of both baselines",
    "methods/baselines/test_link_methods.py": "of both baselines, from the command line too",
    "methods/gmn/test_directed_sets.py": "directions in every part of the package",
    "methods/shared/test_event_classes.py": "of every method for nodes at events",
    "methods/test_deletions.py": "of every method for streams",
    "methods/test_double_precision.py": "of every method that passes messages",
    "methods/test_edge_features.py": "of every method with a place for them",
    "methods/test_idle_settings.py": "of every method's settings",
    "methods/test_node_deletions_in_methods.py": "of every method for streams",
    "methods/test_node_targets.py": "of every method for nodes",
    "methods/test_own_sets.py": "of every method for sets of graphs",
    "methods/test_update_all.py": "through CTDG-SSM, streaming and the past",
    "ops/test_triton.py": "of every operator's Triton kernels",
    "runs/test_bits.py": "of every method for links",
    "runs/test_clocks.py": "of every method's runs",
    "runs/test_later_events.py": "of every method's runs",
    "runs/test_text_ids.py": "of readers, later files and questions",
    "serving/test_damage.py": "of logs, snapshots and sinks alike",
    "testing/test_hard_streams.py": "of every method on streams that are hard to read",
    "training/test_coarse_clocks.py": "of every method for streams",
    "training/test_mixed_negatives.py": "of every method for links",
}


ELSEWHERE = {  # packages whose tests stand in another folder
    "ops/cpu": "ops/test_selective_scan.py",  # the vectors and loops that every kernel is written in
    "ops/neighbors": "data/test_neighbor_store.py",  # its kernels look up in a store's arrays
    "ops/returns": "methods/gmn/test_walk_tokens.py",  # the encodings made of them
}


def module_of(test: Path) -> bool:
    """Return whether a test, by its path below tests, names a module or package of its folder."""
    folder, name = SOURCE / test.parent, test.stem.removeprefix("test_")
    package = test.parent.name
    names = [name, name.removeprefix(f"{package}_")]
    known = {p.stem for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    return f"{name}_".startswith(f"{package}_") or any(
        n in known or any(n.startswith(f"{k}_") for k in known) for n in names
    )


def tests() -> list[Path]:
    return sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


def test_no_two_files_of_tests_have_one_name() -> None:
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name not in ("conftest.py", "__init__.py"))
    assert not [name for name, times in names.items() if times > 1], "pytest imports them by name: test_<package>_m.py"


def test_every_test_stands_where_the_code_does() -> None:
    odd = [t for t in tests() if t.parts[0] not in FOLDERS and t.as_posix() not in TOPICS and not module_of(t)]
    assert not odd, "rename them after a module, or say in TOPICS what they are of"
    stale = [name for name in TOPICS if not (TESTS / name).is_file() or (name.count("/") and module_of(Path(name)))]
    assert not stale, "these are no exceptions"


@pytest.mark.parametrize(
    "module",
    [p.relative_to(SOURCE).with_suffix("") for p in sorted(SOURCE.rglob("*.py")) if p.name != "__init__.py"],
    ids=str,
)
def test_every_module_has_tests_by_its_path(module: Path) -> None:
    package = module.parent
    if package.as_posix() in ELSEWHERE:
        assert (TESTS / ELSEWHERE[package.as_posix()]).is_file()
        return
    assert [
        test
        for test in tests()
        if test.parent == package or (test.parent == package.parent and test.stem.startswith(f"test_{package.name}"))
    ]
