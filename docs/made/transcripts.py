"""Make tests/docs/transcripts.md: commands and their output in a fresh environment.

    python docs/made/transcripts.py --bin VENV/bin --work FOLDER [--only TITLE]

runs every step of `ROWS` with VENV/bin first on the path, an empty home and empty caches, and writes the page. --only
runs the rows whose title contains TITLE and keeps the others. VENV is a fresh environment with the built wheel and the
extras export, hub, tensorboard, mlflow and wandb. Output is cut to the lines that a step keeps. Unexpected failures are
printed. Steps marked `same` print the same on any machine, and tests/docs/test_transcripts.py runs them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "docs" / "transcripts.md"
HEAD = """# Transcripts

Commands in a fresh environment with an empty home and empty caches, and their output (stdout and stderr, cut at
`[...]`). Below each output are the exit status and the CPU time, with imports and first compilations, on one thread of
an AMD EPYC. `docs/made/transcripts.py` makes this page. A test runs the commands that print the same everywhere.

"""


@dataclass(frozen=True)
class Step:
    """A command or script, and which lines of its output are kept.

    Args:
        typed: the command or script.
        keep: pattern of the lines to keep; all lines if empty.
        first: keep at most this many lines.
        mark: mark of the block, see tests/docs/test_doc_commands.py.
        same: whether the output is the same on every machine.
        python: whether `typed` is a Python script.
    """

    typed: str
    keep: str = ""
    first: int = 40
    mark: str = "slow"
    same: bool = False
    python: bool = False


@dataclass(frozen=True)
class Row:
    """A section of the page and its steps in order."""

    title: str
    text: str
    steps: tuple[Step, ...]
    cloned: bool = False  # runs in a clone of this repository


def environment(programs: Path, home: Path) -> dict[str, str]:
    """Return an environment without the variables of this one, except those of pip and TLS."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
    path = f"{programs}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
    return kept | {"PATH": path, "HOME": str(home), "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "110"}


def typed(step: Step, folder: Path, env: dict[str, str]) -> tuple[str, int, float]:
    """Run a step; return its output, exit status and CPU seconds."""
    words = [f"{env['PATH'].partition(os.pathsep)[0]}/python", "-c", step.typed]
    words = words if step.python else ["bash", "-c", step.typed]
    before = os.times()
    done = subprocess.run(
        words, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    after = os.times()
    took = abs(after.children_user + after.children_system - before.children_user - before.children_system)
    return done.stdout, done.returncode, took


def cut(step: Step, text: str, neutral: dict[str, str]) -> list[str]:
    """Return the lines that a step keeps, with neutral paths; "[...]" marks omitted lines."""
    for there, here in neutral.items():
        text = text.replace(there, here)
    found: list[str] = []
    left_out = False
    for line in text.splitlines():
        if len(found) < step.first and (not step.keep or re.search(step.keep, line)):
            found += [*(["[...]"] if left_out else []), line.rstrip()]
            left_out = False
        else:
            left_out = True
    return [*found, *(["[...]"] if left_out else [])]


def shown(step: Step, lines: list[str], status: int, took: float) -> str:
    """Return the Markdown of a step."""
    mark = f"<!-- run: {step.mark} -->\n" if step.mark else ""
    kind = "python" if step.python else "sh"
    answer = "\n".join(["```text", *lines, "```"]) + "\n\n" if lines else ""
    end = f"exit status {status}, {took:.1f} s of CPU time" if not step.same else f"exit status {status}"
    return f"{mark}```{kind}\n{step.typed.strip()}\n```\n\n{answer}*{end}*\n"


def parts(text: str, titles: list[str]) -> dict[str, str]:
    """Return the sections of a page by title. Printed cards have other titles."""
    found = re.split(rf"^## (?=(?:{'|'.join(map(re.escape, titles))})$)", text, flags=re.M)
    return {part.partition("\n")[0]: part.rstrip() + "\n\n" for part in found[1:]}


def main() -> None:
    from transcript_rows import ROWS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    work, home = args.work / "work", args.work / "home"
    for folder in (work, home):
        folder.mkdir(parents=True, exist_ok=True)
    env = environment(args.bin.absolute(), home)
    neutral = {str(work): ".", str(home): "~", str(args.bin.parent.absolute()): "VENV", str(ROOT): "hopstate"}
    titles = [row.title for row in ROWS]
    known = parts(PAGE.read_text("utf-8"), titles) if PAGE.exists() else {}
    for row in ROWS:
        if args.only.lower() in row.title.lower():
            print(time.strftime("%H:%M:%S"), row.title, flush=True)
            steps = [shown(step, cut(step, out, neutral), *rest) for step, out, *rest in _each(row, work, env)]
            known[row.title] = f"{row.title}\n\n{row.text.strip()}\n\n" + "\n".join(steps) + "\n"
        PAGE.write_text(_page(known, titles), "utf-8")


def _each(row: Row, work: Path, env: dict[str, str]) -> list[tuple[Step, str, int, float]]:
    found = []
    if row.cloned:
        if not (work / "clone").exists():
            subprocess.run(["git", "clone", "-q", str(ROOT), str(work / "clone")], check=True)
        work = work / "clone"
    for step in row.steps:
        if "--resume" not in step.typed:  # of an earlier run of this script
            for name in re.findall(r"(?:--out |out=\")(\w+[/\w-]*)", step.typed):
                shutil.rmtree(work / name, ignore_errors=True)
        found.append((step, *typed(step, work, env)))
        if found[-1][2] and "fail" not in step.mark:
            print(f"status {found[-1][2]}: {step.typed.strip()}\n{found[-1][1][-500:]}", flush=True)
    return found


def _page(known: dict[str, str], titles: list[str]) -> str:
    return HEAD + "".join(f"## {known[title]}" for title in titles if title in known).rstrip() + "\n"


if __name__ == "__main__":
    main()
