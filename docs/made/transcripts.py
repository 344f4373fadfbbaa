"""Make tests/docs/transcripts.md: what a new user types and what comes back, from an environment with nothing else in it.

    python docs/made/transcripts.py --bin VENV/bin --work FOLDER [--only TITLE]

runs every step of `ROWS` with the programs of VENV/bin first on the path, an empty home and empty caches, and writes
the page; --only runs the rows whose title holds a text, in the folder that was left, and keeps the others as they
stand. VENV is a fresh environment with the built wheel and the extras export, hub, tensorboard, mlflow and wandb.
What is printed is cut to the lines that a step keeps; a step that fails and was not meant to is told. Steps marked
`same` print the same on any machine: tests/docs/test_transcripts.py runs them.
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
HEAD = """# Tried as a new user would

Every part of hopstate that one meets at the door, typed from a fresh environment with an empty home and empty caches,
and what came back, stdout and stderr together, cut to what matters (`[...]`). The line under each answer says the exit
status and the seconds of the processor, imports and first compilations included, one thread on an AMD EPYC that others
used too: the processor's seconds can be compared, the clock's could not. The page is made by
`docs/made/transcripts.py`; a test types the commands that print the same everywhere, and compares.

"""


@dataclass(frozen=True)
class Step:
    """One command or script, and what of its answer is kept.

    Args:
        typed: as it stands on the page.
        keep: lines that hold this pattern; all where empty.
        first: at most so many lines.
        mark: of tests/docs/test_doc_commands.py; "" for a block that it runs.
        same: whether the answer is the same on every machine.
        python: a script in place of a command.
    """

    typed: str
    keep: str = ""
    first: int = 40
    mark: str = "slow"
    same: bool = False
    python: bool = False


@dataclass(frozen=True)
class Row:
    """A part of the page: what it is about, and the steps in order."""

    title: str
    text: str
    steps: tuple[Step, ...]
    cloned: bool = False  # typed in a clone of this repository, which the first such row makes


def environment(programs: Path, home: Path) -> dict[str, str]:
    """Return a new user's environment: nothing of this one but where its programs and settings of pip are."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
    path = f"{programs}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
    return kept | {"PATH": path, "HOME": str(home), "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "110"}


def typed(step: Step, folder: Path, env: dict[str, str]) -> tuple[str, int, float]:
    """Run a step; return what it printed, its status and the seconds of the processor that it took."""
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
    """Return the lines that a step keeps, without this machine's paths, "[...]" where some are left out."""
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
    """Return a step as the page has it."""
    mark = f"<!-- run: {step.mark} -->\n" if step.mark else ""
    kind = "python" if step.python else "sh"
    answer = "\n".join(["```text", *lines, "```"]) + "\n\n" if lines else ""
    end = f"exit status {status}, {took:.1f} s of the processor" if not step.same else f"exit status {status}"
    return f"{mark}```{kind}\n{step.typed.strip()}\n```\n\n{answer}*{end}*\n"


def parts(text: str, titles: list[str]) -> dict[str, str]:
    """Return the rows of a page by title; cards that are printed have titles of their own."""
    found = re.split(rf"^## (?=(?:{'|'.join(map(re.escape, titles))})$)", text, flags=re.M)
    return {part.partition("\n")[0]: part.rstrip() + "\n\n" for part in found[1:]}


def main() -> None:
    from transcript_rows import ROWS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    work, home = asked.work / "work", asked.work / "home"
    for folder in (work, home):
        folder.mkdir(parents=True, exist_ok=True)
    env = environment(asked.bin.absolute(), home)
    neutral = {str(work): ".", str(home): "~", str(asked.bin.parent.absolute()): "VENV", str(ROOT): "hopstate"}
    titles = [row.title for row in ROWS]
    known = parts(PAGE.read_text("utf-8"), titles) if PAGE.exists() else {}
    for row in ROWS:
        if asked.only.lower() in row.title.lower():
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
        if "--resume" not in step.typed:  # what an earlier making of the page left
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
