"""`hopstate export RUN --to torch|onnx --out FOLDER`: a trained network as a program that needs no hopstate."""

from __future__ import annotations

import argparse

from hopstate.cli.answer import Answer, lines


def run(argv: list[str]) -> Answer:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="hopstate export", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", help="a finished run's folder")
    parser.add_argument("--to", choices=("torch", "onnx"), required=True, help="torch.export (.pt2) or ONNX (.onnx)")
    parser.add_argument("--out", required=True, help="folder for the program and export.json, which explains it")
    parser.add_argument("--data", default=None, help="the run's own data, where they are elsewhere now")
    parser.add_argument("--method", default=None, help="the method, where it is one of your own (module:NAME)")
    o = parser.parse_args(argv[1:])
    from hopstate.runs.export import export_run

    path = export_run(o.run, o.to, o.out, data=o.data, method=o.method)
    told = path.with_name("export.json")
    record = {"program": path, "inputs_and_output": told, "format": o.to}
    return Answer(record, lines(f"program: {path}", f"inputs and output: {told}"))
