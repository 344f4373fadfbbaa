"""Conformance tests of logs: each log has a subclass with a fixture `logs` that opens the same log repeatedly.

A second writer is rejected when it opens (`second` is "refused"), or it takes over and the first is rejected from then
on ("takes over").
"""

import json
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from hopstate.errors import BusyError, CheckpointError, DataError, HopstateError, MissingFileError
from hopstate.serving.log import Commit, Entry, EventLog


@dataclass
class Logs:
    """One log that can be opened repeatedly; another process opens it by `place`."""

    open: Callable[..., EventLog]
    place: str
    second: str = "refused"
    cuts: bool = True
    long: int = 150  # commits of 100 kB in a long log


def entries(*names: str) -> list[Entry]:
    return [Entry(f'{{"n": "{name}"}}', name) for name in names]


def state(log: EventLog) -> tuple[int, list[Commit], int, dict[str, object]]:
    return len(log), list(log.commits()), log.num_dead_letters(), log.facts()


TEXTS = [
    '{"a": "é ß 漢字 🎲 \\u0000"}',
    '{"a": "\\t\\n\\\\ \\" \' \\\\N"}',
    '{"a": "\u2028\ufeff\U0010ffff"}',
    "{}",
    "1",
    json.dumps({"a": "x" * 100_000}),
]
IDS = ["it's", "\\N", "a\tb\nc", "漢", "e\u0301", "é", " ", "a ", "a", "A", "1", "01", "🎲"]


DAMAGE = {  # damage of a log of the commits "a b c", "1 1", "d", and the event that the error names
    "another text": ("update events set body = replace(body, 'b', 'c') where position = 1", 1),
    "no id": ("update events set id = null where position = 1", 1),
    "another place": ("update events set position = 99 where position = 1", 1),
    "another commit": ("update events set begins = 1 where position = 2", 2),
    "far away": ("update events set position = position + 1099511627776 where position = 3", 3),
    "the first is missing": ("delete from events where position = 0", 0),
    "one is missing": ("delete from events where position = 2", 2),
    "the last is missing": ("delete from events where position = 5", 5),
    "two changed places": ("update events set body = case body when '{}' then '1' else '{}' end where id is null", 3),
    "another count": ("update facts set value = '5' where key = 'end'", "end"),
    "another fact": ("update facts set value = '5' where key = 'own_events'", "own_events"),
}


class LogConformance:
    def test_commits_round_trip(self, logs: Logs) -> None:
        log = logs.open()
        assert (len(log), log.start, list(log.commits())) == (0, 0, [])
        assert log.append(entries("a", "b", "c")) == 0
        assert log.append([Entry("1"), Entry("1")]) == 3  # without ids, which may repeat
        assert log.append(entries("d")) == 5
        whole = [
            Commit(0, ('{"n": "a"}', '{"n": "b"}', '{"n": "c"}')),
            Commit(3, ("1", "1")),
            Commit(5, ('{"n": "d"}',)),
        ]
        assert list(log.commits()) == list(log.commits(0)) == whole
        assert list(log.commits(1)) == [Commit(1, whole[0].bodies[1:]), *whole[1:]]
        assert list(log.commits(5)) == whole[2:]
        assert list(log.commits(6)) == list(log.commits(99)) == []
        assert log.positions(["d", "b", "absent", "it's"]) == {"d": 5, "b": 1}
        assert log.positions([]) == log.bodies([]) == {}
        assert log.bodies([5, 0, 4, 1, 99]) == {5: '{"n": "d"}', 0: '{"n": "a"}', 4: "1", 1: '{"n": "b"}'}
        log.close()
        log = logs.open()
        assert list(log.commits()) == whole
        assert log.append(entries("e")) == 6
        assert log.positions(["a", "e"]) == {"a": 0, "e": 6}
        log.close()

    @pytest.mark.parametrize("kind", DAMAGE)
    def test_damage_is_named_by_place_and_position(self, kind: str, logs: Logs) -> None:
        """For the next writer or reader, and for a reader that is already open."""
        log, (change, where) = logs.open(), DAMAGE[kind]
        log.append(entries("a", "b", "c"), {"own_events": 4})
        log.append([Entry("1"), Entry("1")])
        log.append(entries("d"))
        reader = logs.open(read_only=True)
        log._query(change)
        words = re.escape(log.place) + ".*" + (f"event {where} " if isinstance(where, int) else where)
        with pytest.raises(CheckpointError, match=words):
            (reader.facts(), list(reader.commits()))
        reader.close()
        log.close()
        for read_only in (False, True):
            with pytest.raises(CheckpointError, match=words):
                logs.open(read_only=read_only)

    def test_arbitrary_text_round_trips(self, logs: Logs) -> None:
        log = logs.open()
        log.append([Entry(text) for text in TEXTS])
        for name in IDS:
            log.append([Entry("{}", name)])
        log.append([Entry("{}", f"{name}+") for name in IDS])
        log.set_facts({'k"é': {"漢": [None, 1.5, "\0"]}})
        log.close()
        log = logs.open()
        assert next(log.commits()).bodies == tuple(TEXTS)
        first = len(TEXTS)
        assert log.positions(IDS) == {name: first + k for k, name in enumerate(IDS)}
        assert log.positions([f"{name}+" for name in IDS]).keys() == {f"{name}+" for name in IDS}
        assert log.facts()['k"é'] == {"漢": [None, 1.5, "\0"]}
        log.close()

    @pytest.mark.parametrize(
        "bad",
        [
            [*entries("x"), Entry("1", "b")],
            [*entries("x", "y"), Entry("1", "x")],
        ],
        ids=["there already", "twice"],
    )
    def test_a_rejected_commit_leaves_nothing(self, bad: list[Entry], logs: Logs) -> None:
        log = logs.open()
        log.append(entries("a", "b"), {"source": 1})
        log.add_dead_letters(entries("p"), "late")
        before = state(log)
        with pytest.raises(DataError):
            log.append(bad, {"source": 2})
        assert state(log) == before
        assert log.positions(["x", "y"]) == {}
        assert log.append(entries("x")) == 2
        log.close()

    def test_every_event_of_a_large_commit_is_found(self, logs: Logs) -> None:
        """With all, no or some ids; more events than one read returns."""
        log = logs.open()
        texts = [f'{{"n": {k}}}' for k in range(2_203)]
        log.append([Entry(text) for text in texts])
        log.append([Entry(text, name) for text, name in zip(texts, ["a", None, "c"])])
        log.append([Entry(text, name) for text, name in zip(texts, ["d", "e"])])
        every = texts + texts[:3] + texts[:2]
        assert log.positions(["a", "b", "c", "d", "e"]) == {"a": 2_203, "c": 2_205, "d": 2_206, "e": 2_207}
        for _ in range(2):
            for at in (0, 1, 999, 1_000, 1_001, 2_202, 2_203, 2_204, 2_206, 2_207):
                assert [body for commit in log.commits(at) for body in commit.bodies] == every[at:]
            some = [2_207, 999, 1_000, 0, 2_202, 2_204, 2_208, 5_000]
            assert log.bodies(some) == {at: every[at] for at in some if at < len(every)}
            log.close()
            log = logs.open()
        assert [len(commit.bodies) for commit in log.commits()] == [2_203, 3, 2]
        log.close()

    def test_an_empty_commit_is_ignored(self, logs: Logs) -> None:
        log = logs.open()
        assert log.append([]) == 0
        log.append(entries("a"))
        assert log.append([]) == log.append([]) == 1
        assert log.append([], {"source": 7}) == 1  # but the given facts are kept
        assert (len(list(log.commits())), log.facts()["source"]) == (1, 7)
        log.add_dead_letters([], "late")
        assert log.num_dead_letters() == 0
        log.close()

    def test_facts_are_stored_with_and_without_events(self, logs: Logs) -> None:
        log = logs.open()
        log.set_facts({"model": "m", "own_events": 3})
        log.set_facts({"own_events": 4})
        log.append(entries("a"), {"source": {"p": 0}})
        log.append(entries("b"), {"source": {"p": 1}})
        log.close()
        log = logs.open()
        found = {key: log.facts()[key] for key in ("model", "own_events", "source")}
        assert found == {"model": "m", "own_events": 4, "source": {"p": 1}}
        log.close()

    def test_dead_letters_are_stored_once(self, logs: Logs) -> None:
        log = logs.open()
        log.add_dead_letters(entries("p", "q"), "late")
        log.add_dead_letters(entries("q", "r"), "late")
        log.append(entries("q"))  # opaque to the log
        log.close()
        log = logs.open()
        log.add_dead_letters(entries("r"), "late")
        assert (log.num_dead_letters(), len(log)) == (3, 1)
        log.add_dead_letters([Entry("1"), Entry("1")], "late")
        assert log.num_dead_letters() == 5
        log.close()

    def test_an_id_sent_by_many_clients_is_stored_once(self, logs: Logs) -> None:
        log = logs.open()

        def send(k: int) -> int:
            appended = 0
            for i in range(10):
                try:
                    log.append([Entry(str(k), f"e{i}"), Entry(str(k), f"f{i}")])
                    appended += 1
                except DataError:
                    pass
            return appended

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(send, range(4))) == 10
        assert len(log) == 20
        assert all(len(set(commit.bodies)) == 1 and len(commit.bodies) == 2 for commit in log.commits())
        assert sorted(log.positions([f"e{i}" for i in range(10)]).values()) == list(range(0, 20, 2))
        log.close()

    def test_a_log_has_one_writer(self, logs: Logs) -> None:
        """In this process and from another one; a rejected writer has stored nothing."""
        log = logs.open()
        log.append(entries("a"))
        if logs.second == "refused":
            with pytest.raises(BusyError):
                logs.open()
            code = "import sys; from hopstate.serving.log import open_log; open_log(sys.argv[1])"
            done = subprocess.run([sys.executable, "-c", code, logs.place], capture_output=True, text=True)
            assert "BusyError" in done.stderr
            log.append(entries("b"))
            log.close()
            log = logs.open()  # free again
        else:
            other = logs.open()
            other.append(entries("b"))
            for _ in range(2):
                with pytest.raises(BusyError):
                    log.append(entries("c"))
                with pytest.raises(BusyError):
                    log.set_facts({"x": 1})
                with pytest.raises(BusyError):
                    log.add_dead_letters(entries("c"), "late")
            log.close()
            log = other
        assert log.append(entries("d")) == 2
        assert ("x" in log.facts(), log.num_dead_letters()) == (False, 0)
        log.close()

    def test_readers_see_complete_commits_and_write_nothing(self, logs: Logs) -> None:
        with pytest.raises(MissingFileError):
            logs.open(read_only=True)
        log = logs.open()
        log.append(entries("a", "b"))
        reader = logs.open(read_only=True)
        assert len(reader) == 2

        def write() -> None:
            for k in range(40):
                log.append([Entry(str(k), f"{k}-{i}") for i in range(7)])

        with ThreadPoolExecutor(1) as pool:
            done, seen, looks = pool.submit(write), 2, 0
            while not done.done() or looks < 3:
                looks += 1
                for commit in reader.commits(seen):
                    assert (commit.first, len(commit.bodies), len(set(commit.bodies))) == (seen, 7, 1)
                    seen += 7
                assert (len(reader) - 2) % 7 == 0
            done.result()
        assert [c.first for c in reader.commits(seen)] == list(range(seen, 282, 7))
        assert len(reader) == 282
        assert reader.positions(["39-6", "absent"]) == {"39-6": 281}
        log.add_dead_letters(entries("p"), "late")
        log.set_facts({"x": 1})
        assert (reader.num_dead_letters(), reader.facts()["x"]) == (1, 1)
        for change in (
            lambda: reader.append(entries("z")),
            lambda: reader.set_facts({"y": 1}),
            lambda: reader.add_dead_letters(entries("z"), "late"),
            lambda: reader.cut(1),
        ):
            with pytest.raises(HopstateError):
                change()
        assert ("y" in log.facts(), log.num_dead_letters(), len(log), log.start) == (False, 1, 282, 0)
        reader.close()
        log.append(entries("after"))
        log.close()

    def test_a_long_log_is_read_in_little_memory(self, logs: Logs) -> None:
        log, body = logs.open(), json.dumps({"a": "x" * 1_000})
        for _ in range(logs.long):
            log.append([Entry(body)] * 100)
        log.close()
        log = logs.open(read_only=True)
        assert sum(len(commit.bodies) for commit in log.commits()) == 100 * logs.long  # warm up caches
        tracemalloc.start()
        try:
            assert sum(len(commit.bodies) for commit in log.commits()) == 100 * logs.long
            assert tracemalloc.get_traced_memory()[1] < 1e5 * logs.long * 0.7
        finally:
            tracemalloc.stop()
        log.close()

    def test_events_before_a_position_are_truncated(self, logs: Logs) -> None:
        if not logs.cuts:
            pytest.skip("what holds this log in tests cannot delete")
        log = logs.open()
        for k in range(5):
            log.append([Entry(f"{k}{i}", f"{k}{i}") for i in range(3)], {"source": k})
        assert log.cut(2) == log.start == 0  # a commit is kept completely or not at all
        assert log.cut(7) == log.start == 6
        reader = logs.open(read_only=True)
        for one in (log, reader):
            assert (one.start, len(one), one.facts()["source"]) == (6, 15, 4)
            assert [c.first for c in one.commits()] == [c.first for c in one.commits(6)] == [6, 9, 12]
            assert [c.first for c in one.commits(7)] == [7, 9, 12]
            with pytest.raises(CheckpointError, match="event 6"):
                next(one.commits(5))
            assert one.positions(["00", "20", "42"]) == {"20": 6, "42": 14}
        reader.close()
        assert log.cut(99) == 12  # the last event is kept, and with it the count
        log.close()
        log = logs.open()
        assert (log.start, len(log)) == (12, 15)
        assert log.append(entries("next")) == 15
        assert [c.first for c in log.commits()] == [12, 15]
        log.close()
