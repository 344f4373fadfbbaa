"""`hopstate export RUN --to torch|onnx --out FOLDER`: export a trained network to run without hopstate."""

from __future__ import annotations

import json
from typing import Any

from hopstate.cli.commands import CommandParser, CommandResult, lines


def run(argv: list[str]) -> CommandResult:
    parser = CommandParser(prog="hopstate export", description=__doc__, allow_abbrev=False)
    parser.add_run("--method")
    parser.add_argument("--to", choices=("torch", "onnx"), required=True, help="torch.export (.pt2) or ONNX (.onnx)")
    parser.add_argument("--out", required=True, help="folder for the program and export.json, which describes it")
    parser.add_argument("--data", help="data of the run, if they were moved")
    parser.add_argument("--opset", type=int, help="ONNX opset version, 18 to 21 (default: 20)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare program and run on the data of the run, print the largest difference, and fail above 1e-5",
    )
    o = parser.parse_args(argv[1:])
    from hopstate.runs.export import check_program, export_run, require_packages
    from hopstate.runs.run import load

    if o.check and o.to == "onnx":
        require_packages("onnxruntime")
    opened = load(o.run, o.data)  # its data are used as long as it lives
    path = export_run(opened.path, o.to, o.out, opset=o.opset)
    description = path.with_name("export.json")
    facts = json.loads(description.read_text("utf-8"))
    left_out, versions = facts["left_out"], facts["versions"]
    record: dict[str, Any] = {"program": path, "inputs_and_output": description, "format": o.to, "versions": versions}
    record |= {"left_out": left_out, "check": None}
    messages = [f"program: {path}", f"inputs and output: {description}"]
    if o.to == "onnx":
        readers = f"onnxruntime {versions['onnxruntime'] or 'of the same opset'} and later read it"
        messages.append(f"versions: opset {versions['opset']}, IR {versions['ir']}; {readers}")
    else:
        messages.append(f"versions: written by torch {versions['torch']}; older versions may not read it")
    messages += [f"left out of the program: {left_out}"] if left_out else []
    if o.check:
        checked = check_program(opened.path, path)
        record["check"] = checked
        messages.append(f"check: {checked.text()}; the tolerance is {checked.tolerance:g}")
    return CommandResult(record, lines(*messages))
