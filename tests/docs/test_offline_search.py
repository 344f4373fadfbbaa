"""The site's search works where its pages are opened as files: its worker runs in a frame there."""

from __future__ import annotations

import re
from pathlib import Path

from headless import command, visit

ROOT = Path(__file__).parents[2]


def test_a_worker_answers_in_a_page_that_is_a_file(tmp_path: Path) -> None:
    browser = command()
    shim = (ROOT / "docs" / "javascripts" / "iframe-worker.js").as_uri()
    (tmp_path / "worker.js").write_text("addEventListener('message', (e) => postMessage(e.data.map((x) => 2 * x)));")
    page = tmp_path / "page.html"
    page.write_text(
        f'<!DOCTYPE html><head><script src="{shim}"></script></head><body><p id="found"></p><script>'
        'const worker = new Worker("worker.js"); let told = [];'
        "worker.addEventListener('message', (e) => {"
        " told = [...told, ...e.data]; document.getElementById('found').textContent = told; });"
        "worker.postMessage([1, 2]); worker.postMessage([4]);</script></body>"
    )
    assert '<p id="found">2,4,8</p>' in visit(browser, page, "--dump-dom")


def test_the_site_takes_the_worker_of_its_own() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "- offline" in site
    (scripts,) = re.findall(r"polyfills: \[(.*?)\]", site)
    assert scripts == "javascripts/iframe-worker.js"  # the plugin asks unpkg.com for one unless this name is there
