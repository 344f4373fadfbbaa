"""Pages in a real headless browser at a given width, without a network."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest


def command() -> str:
    """Return a headless browser's command, or skip the test."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("needs chromium, chromium-browser or google-chrome on PATH, and none is here")


def visit(browser: str, page: Path, *options: str, address: str = "") -> str:
    """Run the browser without a network and return what it prints.

    Args:
        browser: its command.
        page: a file; the browser keeps its profile in the same folder.
        options: of the browser.
        address: what is opened instead of the file, of this machine.
    """
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    command += [
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={page.parent / 'profile'}",
    ]
    command += ["--no-proxy-server", "--virtual-time-budget=3000", *options, address or page.as_uri()]
    env = os.environ | {"DBUS_SESSION_BUS_ADDRESS": ""}
    completed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=env)
    assert completed.returncode == 0, completed.stderr[-2000:]
    return completed.stdout


def look(browser: str, folder: Path, text: str, check: str, width: int, *options: str, wait: int = 0) -> dict[str, Any]:
    """Return the result of a script in a page of a given width.

    Args:
        browser: its command.
        folder: for what is written.
        text: the page.
        check: the script; `frame` is the page, and it writes JSON into the element "found".
        width: CSS pixels.
        options: of the browser.
        wait: milliseconds after the page is loaded.
    """
    wrapper = folder / f"wrapper-{width}.html"
    wrapper.write_text(
        f'<!DOCTYPE html><pre id="found"></pre><iframe id="frame" style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{html.escape(text)}"></iframe><script>const frame = document.getElementById("frame");'
        f"frame.onload = () => setTimeout(() => {{ {check} }}, {wait});</script>"
    )
    shown = visit(browser, wrapper, "--dump-dom", "--window-size=1400,1000", *options)
    found = re.search(r'<pre id="found">(\{.*?\})</pre>', shown, re.S)
    assert found, shown[:500]
    return dict(json.loads(html.unescape(found[1])))
