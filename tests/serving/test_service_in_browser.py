"""The page of a live run in a real headless browser: on a telephone, on a desk, in the dark; skips without one.

What it shows is asked of a service; the answer stands in the page itself, so that nothing is fetched.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import headless
from headless import command
from hopstate.serving import __name__ as room

ROW = {"average_precision": 0.971, "recency_average_precision": 0.953}
STATE: dict[str, Any] = {
    "events_per_second": 512.3,
    "position": 1_234_567,
    "known_events": 1_254_567,
    "nodes": 20_123,
    "last_time": 1_700_000_000,
    "snapshot": 1_200_000,
    "waiting": 3,
    "arrived": 7_300.0,
    "follows": True,
    "lag": 4_321,
    "parked": 17,
    "trouble": "postgresql://db.example/shop?table=orders cannot be written or read (connection refused); see whether "
    "the server runs and whether its disk is full",
    "quality": {"random": ROW, "historical": ROW},
    "judged": 1_000,
    "alarms": [{"position": 1_200_123, "text": "ranks have drifted: the mean reciprocal rank is now 0.31"}],
    "shadow": {"lag": 99, "trouble": "", "quality": {"random": ROW}, "run": "retrained", "model": "ab"},
}
CALM = STATE | {"trouble": "", "follows": False, "parked": 0, "alarms": [], "arrived": 3.0}
CALM = {key: value for key, value in CALM.items() if key != "shadow"}
# how far the page overflows, the least contrast of its text, what it says
CHECK = """
const doc = frame.contentDocument, view = frame.contentWindow, seen = {};
const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const ground = view.matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
const light = c => { const f = c.slice(0, 3).map(v => linear(v / 255)); return .2126*f[0] + .7152*f[1] + .0722*f[2]; };
let least = 99;
for (const e of doc.body.querySelectorAll('*')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.offsetParent) continue;
  let alpha = 1; for (let p = e; p; p = p.parentElement) alpha *= parseFloat(view.getComputedStyle(p).opacity);
  const ink = parse(view.getComputedStyle(e).color).slice(0, 3).map((v, i) => v * alpha + ground[i] * (1 - alpha));
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  least = Math.min(least, (a + .05) / (b + .05));
}
seen.least = least;
seen.overflow = doc.documentElement.scrollWidth - doc.documentElement.clientWidth;
seen.alert = doc.getElementById('trouble').offsetParent ? doc.getElementById('trouble').textContent : '';
seen.facts = doc.getElementById('facts').innerText;
seen.alarms = doc.getElementById('alarms').innerText;
seen.heads = [...doc.querySelectorAll('#quality th')].filter(e => e.offsetParent).map(e => e.textContent);
seen.dark = view.matchMedia('(prefers-color-scheme: dark)').matches;
document.getElementById('found').textContent = JSON.stringify(seen);
"""


@pytest.fixture(scope="module")
def browser() -> str:
    return command()


def page(state: dict[str, Any], status: int = 200) -> str:
    """The page, whose answers are these."""
    answer = f"() => new Response(JSON.stringify({json.dumps(state)}), {{ status: {status} }})"
    text = files(room).joinpath("page.html").read_text("utf-8")
    return text.replace("<script>", f"<script>\n  window.fetch = async {answer};\n", 1)


def look(browser: str, folder: Path, text: str, width: int, *options: str) -> dict[str, Any]:
    return headless.look(browser, folder, text, CHECK, width, *options, wait=300)


@pytest.mark.parametrize(
    ("width", "options"), [(390, ()), (1280, ()), (390, ("--blink-settings=preferredColorScheme=0",))]
)
def test_trouble_and_lag_are_seen_at_once(browser: str, tmp_path: Path, width: int, options: tuple[str, ...]) -> None:
    seen = look(browser, tmp_path, page(STATE), width, *options)
    assert seen["dark"] == bool(options)
    assert seen["overflow"] <= 0
    assert seen["least"] >= 4.5
    assert seen["alert"] == f"Trouble: {STATE['trouble']}"
    for told in ("4,321", "99", "2 h ago", "17", "512.3"):
        assert told in seen["facts"]
    assert "ranks have drifted" in seen["alarms"]
    assert seen["heads"] == ["Other targets", "Model", "Shadow", "Recency"]


def test_where_all_is_well_nothing_of_it_is_seen(browser: str, tmp_path: Path) -> None:
    seen = look(browser, tmp_path, page(CALM), 390)
    assert (seen["alert"], seen["alarms"]) == ("", "")
    assert "behind" not in seen["facts"]
    assert seen["heads"] == ["Other targets", "Model", "Recency"]


def test_a_service_that_does_not_answer_is_told(browser: str, tmp_path: Path) -> None:
    seen = look(browser, tmp_path, page({"error": "a token is needed: Authorization: Bearer TOKEN"}, 401), 390)
    assert "No answer: a token is needed" in seen["alert"]
