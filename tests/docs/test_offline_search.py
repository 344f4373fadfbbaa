"""The search of the site works if its pages are opened as files: a worker then runs in a frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from headless import command, visit

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_search_worker_runs_in_a_local_file(tmp_path: Path) -> None:
    browser = command()
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "polyfills: [javascripts/iframe-worker.js]" in site  # without this name the plugin fetches a script
    shim = (ROOT / "docs" / "javascripts" / "iframe-worker.js").as_uri()
    (tmp_path / "worker.js").write_text("addEventListener('message', (e) => postMessage(e.data.map((x) => 2 * x)));")
    page = tmp_path / "page.html"
    page.write_text(
        f'<!DOCTYPE html><head><script src="{shim}"></script></head><body><p id="found"></p><script>'
        'const worker = new Worker("worker.js"); let all = [];'
        "worker.addEventListener('message', (e) => {"
        " all = [...all, ...e.data]; document.getElementById('found').textContent = all; });"
        "worker.postMessage([1, 2]); worker.postMessage([4]);</script></body>"
    )
    assert '<p id="found">2,4,8</p>' in visit(browser, page, "--dump-dom")
