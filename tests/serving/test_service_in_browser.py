"""The page of a live run in a real headless browser: on a phone, on a desktop, in dark mode; skips without one.

Most tests insert the response of a service into the page, so that nothing is fetched. One test starts a service with
a token and queries it.
"""

import json
import re
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pandas as pd
import pytest

import headless
from headless import command
from hopstate.serving import __name__ as room
from made_events import small_run, table

pytestmark = pytest.mark.slow

ROW = {"average_precision": 0.971, "recency_average_precision": 0.953, "mrr": 0.812, "recency_mrr": 0.7, "ece": 0.043}
STATE: dict[str, Any] = {
    "events_per_second": 512.3,
    "position": 1_234_567,
    "known_events": 1_254_567,
    "nodes": 20_123,
    "run": "served",
    "method": "pair-trees",
    "last_time": 1_700_000_000,
    "last_shown": "2023-11-14T22:13:20+01:00",
    "last_age": 9_000.0,
    "snapshot": 1_200_000,
    "snapshot_age": 61.0,
    "waiting": 3,
    "waiting_events": 1_500,
    "latency": {
        "/events": {"answers": 500, "p50": 0.0123, "p99": 0.0456},
        "/state": {"answers": 9, "p50": 1, "p99": 1},
    },
    "arrived": 7_300.0,
    "is_replica": True,
    "lag": 4_321,
    "source_lag": 8_642,
    "dead_letters": 17,
    "trouble": "postgresql://db.example/events?log=served cannot be written or read (connection refused); see whether "
    "the server runs and whether its disk is full",
    "quality": {"random": ROW, "historical": ROW},
    "evaluated": 12_345,
    "window": 1_000,
    "mean_score": 0.1,
    "latest": [{"src": "alice", "dst": "bob", "t": "2023-11-14T22:13:20+01:00"}],
    "alarms": [{"position": 1_200_123, "text": "below recency among random targets: 0.31 against 0.4"}],
}
CALM = STATE | {"trouble": "", "is_replica": False, "source_lag": None, "dead_letters": 0, "alarms": [], "arrived": 3.0}
CALM |= {"latency": {}, "quality": {}, "evaluated": 0, "window": 0, "last_age": None, "waiting_events": 0}
# overflow of the page, minimum text contrast, its text
CHECK = """
const doc = frame.contentDocument, view = frame.contentWindow, seen = {};
const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const under = e => { for (; e; e = e.parentElement) {
  const c = parse(view.getComputedStyle(e).backgroundColor); if (c[3] > 0) return c.slice(0, 3); } };
const light = c => { const f = c.slice(0, 3).map(v => linear(v / 255)); return .2126*f[0] + .7152*f[1] + .0722*f[2]; };
let least = 99;
for (const e of doc.body.querySelectorAll('*')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.offsetParent) continue;
  const ground = under(e);
  let alpha = 1; for (let p = e; p; p = p.parentElement) alpha *= parseFloat(view.getComputedStyle(p).opacity);
  const ink = parse(view.getComputedStyle(e).color).slice(0, 3).map((v, i) => v * alpha + ground[i] * (1 - alpha));
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  least = Math.min(least, (a + .05) / (b + .05));
}
seen.least = least;
seen.overflow = doc.documentElement.scrollWidth - doc.documentElement.clientWidth;
seen.alert = doc.getElementById('trouble').offsetParent ? doc.getElementById('trouble').textContent : '';
seen.facts = doc.getElementById('facts').innerText;
seen.name = doc.getElementById('name').innerText;
for (const name of ['quality', 'latency', 'events', 'charts'])
  seen[name] = doc.getElementById(name).offsetParent ? doc.getElementById(name).innerText : '';
seen.alarms = doc.getElementById('alarms').innerText;
seen.ids = [...doc.getElementById('ids').options].map(e => e.value);
seen.heads = [...doc.querySelectorAll('#quality th')].filter(e => e.offsetParent).map(e => e.textContent);
seen.dark = view.matchMedia('(prefers-color-scheme: dark)').matches;
document.getElementById('found').textContent = JSON.stringify(seen);
"""


@pytest.fixture(scope="module")
def browser() -> str:
    return command()


def page(state: dict[str, Any], status: int = 200) -> str:
    """The page with fixed responses."""
    answer = f"() => new Response(JSON.stringify({json.dumps(state)}), {{ status: {status} }})"
    text = files(room).joinpath("page.html").read_text("utf-8")
    return text.replace("<script>", f"<script>\n  window.fetch = async {answer};\n", 1)


def look(browser: str, folder: Path, text: str, width: int, *options: str) -> dict[str, Any]:
    return headless.look(browser, folder, text, CHECK, width, *options, wait=300)


@pytest.mark.parametrize(
    ("width", "options"), [(390, ()), (1280, ()), (390, ("--blink-settings=preferredColorScheme=0",))]
)
def test_errors_and_lag_are_visible(browser: str, tmp_path: Path, width: int, options: tuple[str, ...]) -> None:
    seen = look(browser, tmp_path, page(STATE), width, *options)
    assert seen["dark"] == bool(options)
    assert seen["overflow"] <= 0
    assert seen["least"] >= 4.5
    assert seen["alert"] == f"Error: {STATE['trouble']}"
    for text in (
        "4,321",
        "8,642",
        "2 h ago",
        "17",
        "2023-11-14 22:13:20 +01:00",
        "1,500",
        "61 s ago",
        "3 h",
    ):
        assert text in seen["facts"]
    assert seen["name"] == "served: pair-trees, live"
    assert "the last 1,000 of 12,345 evaluated events" in seen["quality"]
    for text in ("Average precision, random\t0.971\t0.953", "Calibration error, historical\t0.043\t"):
        assert text in seen["quality"]
    assert "/events\t12.3\t45.6\t500" in seen["latency"]
    assert "/state" not in seen["latency"]
    assert "below recency" in seen["alarms"]
    assert "alice\tbob\t2023-11-14 22:13:20 +01:00" in seen["events"]
    assert seen["ids"] == ["alice"]
    assert "512.3" in seen["charts"]
    assert "0.971 against 0.953" in seen["charts"]
    assert seen["heads"] == ["Metric, negatives", "Model", "Recency"]


def test_a_healthy_service_shows_no_error(browser: str, tmp_path: Path) -> None:
    seen = look(browser, tmp_path, page(CALM), 390)
    assert (seen["alert"], seen["alarms"]) == ("", "")
    assert "behind" not in seen["facts"].lower()
    assert "not on disk" not in seen["facts"]
    assert (seen["heads"], seen["quality"], seen["latency"]) == ([], "", "")


def test_quality_is_shown_after_a_hundred_events(browser: str, tmp_path: Path) -> None:
    seen = look(browser, tmp_path, page(STATE | {"window": 99, "evaluated": 99}), 390)
    assert seen["quality"] == ""
    assert "99 so far" in seen["charts"]
    assert "0.971" not in seen["charts"]


def test_an_unreachable_service_is_shown(browser: str, tmp_path: Path) -> None:
    seen = look(browser, tmp_path, page({"error": "a token is needed: Authorization: Bearer TOKEN"}, 401), 390)
    assert "No answer: a token is needed" in seen["alert"]


def test_the_form_ranks_with_a_token(browser: str, tmp_path: Path) -> None:
    """The token is in the fragment of the address; a wrong token shows no result."""
    pytest.importorskip("uvicorn", reason="needs the extra serve: pip install 'hopstate[serve]'")
    run = small_run("recency", tmp_path, dated(0, 160))
    (tmp_path / "token").write_text("secret")
    words = [sys.executable, "-m", "hopstate.cli.main", "serve", str(run.path), "--port", "0"]
    words += ["--token-file", str(tmp_path / "token")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            where = re.search(r"http://127\.0\.0\.1:\d+", service.stdout.readline())
            assert where is not None
            body = json.dumps({"events": dated(200, 20).to_dict("records")}).encode()
            heads = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
            with urlopen(Request(f"{where[0]}/events", body, heads), timeout=60) as answer:
                assert answer.status == 200
            with_it, with_another = (
                parts_of(headless.visit(browser, tmp_path / "none", "--dump-dom", address=f"{where[0]}/#{fragment}"))
                for fragment in ("token=secret&who=u1", "token=wrong&who=u1")
            )
        finally:
            service.send_signal(signal.SIGTERM)
    rows = re.findall("<tr><td>(.*?)</td>", with_it["found"])
    assert rows == run.rank("u1", top=8, events=dated(200, 20))["dst"].tolist()
    assert (with_it["name"], with_it["trouble"]) == ("recency: recency, live", "")
    assert "2024-01-10 03:00:00" in with_it["facts"]  # of the last event, as in its file
    assert "No answer: a token is needed" in with_another["trouble"]
    assert "a token is needed" in with_another["said"]
    assert ("<td>" in with_another["found"], with_another["facts"]) == (False, "")


def parts_of(shown: str) -> dict[str, str]:
    """The text of parts of a page."""
    return {one: re.findall(rf'id="{one}".*?>(.*?)</(?:dl|h1|table|p)>', shown, re.S)[0] for one in PARTS} | {
        "trouble": re.findall(r'id="trouble".*?>(.*?)</div>', shown, re.S)[0]
    }


PARTS = ("name", "facts", "found", "said")


def dated(first: int, count: int) -> pd.DataFrame:
    """Events one hour apart, with dates."""
    t = pd.date_range("2024-01-01", periods=first + count, freq="h")[first:]
    return table(first, count).assign(t=t.astype(str))
