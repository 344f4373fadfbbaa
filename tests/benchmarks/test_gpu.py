"""A dry run of the GPU script: each measurement writes lines, failures lose no earlier result, limits are kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
BARE = """
import sys
class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jsonargparse", "pooch", "pymetis", "beartype"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Bare())
"""


def run(folder: Path, *more: str, code: int = 0) -> dict[str, list[dict]]:
    """Run the script as on a machine without an installation and some libraries; return its lines."""
    (folder / "bare").mkdir()
    (folder / "bare/sitecustomize.py").write_text(BARE)
    environment = os.environ | {"PYTHONPATH": str(folder / "bare"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "benchmarks/gpu.py"), "--out", "results", *more]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    logs = "".join(path.read_text() for path in (folder / "results").glob("*.log"))
    assert done.returncode == code, done.stderr + logs
    files = [path for path in (folder / "results").glob("*.jsonl") if path.is_file()]
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in files}


def test_a_failure_loses_no_earlier_result(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/scan.jsonl").mkdir()  # so that its lines cannot be written
    found = run(tmp_path, "--dry-run", "--only=scan,top", code=1)
    assert [row["status"] for row in found["summary"]] == ["exit code 1", "ok"]
    assert [row["batching"] for row in found["top"]] == ["full", "top, refreshed", "top, made once", "gas"]


def test_limits_are_kept(tmp_path: Path) -> None:
    found = run(tmp_path, "--dry-run", "--only=scan,epochs", "--seconds=2", code=1)
    assert [row["status"] for row in found["summary"]] == ["stopped after 2 s", "no time left"]


def test_without_a_gpu_the_message_names_the_dry_run(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    run(tmp_path, "--only=scan", code=1)
    assert "--dry-run" in (tmp_path / "results/scan.log").read_text()


def test_every_measurement_has_a_dry_run_without_a_gpu(tmp_path: Path) -> None:
    found = run(tmp_path, "--dry-run", f"--data={tmp_path}")
    names = [row["measurement"] for row in found.pop("summary")]
    assert names == ["tests", "scan", "epochs", "lengths", "gmn", "top", "precision", "compile"]
    assert set(found) == set(names) - {"tests"}
    for name, rows in found.items():
        assert all(row["tests"] == "green" and row["dry_run"] and "error" not in row for row in rows), name
    assert {(row["method"], row["precision"]) for row in found["epochs"]} == {
        (method, precision) for method in ("dyg-mamba", "dygformer", "ctdg-ssm") for precision in ("32", "bf16-mixed")
    }
    assert all(row["data"].startswith("made: 20 nodes, 300 events") for row in found["epochs"])
    assert all(row["epoch_s"] > 0 for name in ("epochs", "gmn", "top", "precision", "compile") for row in found[name])


def test_kernels_compile_for_an_absent_gpu() -> None:
    script = str(ROOT / "benchmarks/gpu_kernels.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=900, check=True)
    rows = [
        line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith(("| float", "| bfloat"))
    ]
    assert {row[1] for row in rows} == {"forward", "backward", "combine", "pull_gradient", "convolve", "weight_sums"}
    assert all(int(spilled) == 0 for variant, _, _, spilled, _ in rows if "euler" not in variant)
