"""`hopstate check-leak RUN`: change, add and remove events after a time; no score for an earlier time may change."""

from __future__ import annotations

from hopstate.cli.commands import CommandParser, CommandResult, lines


def run(argv: list[str]) -> CommandResult:
    """Check a run; status 1 if a score changed (the message names pair, time and alteration)."""
    parser = CommandParser(prog="hopstate check-leak", description=__doc__)
    parser.add_run("--device", "--method")
    parser.add_argument("--times", type=int, default=6, help="number of times to check (default: 6)")
    parser.add_argument(
        "--queries", type=int, default=64, help="number of pairs scored at and before each time (default: 64)"
    )
    parser.add_argument("--events", type=int, default=5000, help="number of latest events to use (default: 5000)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    options = parser.parse_args(argv[1:])
    from hopstate.runs.inference import check_leak

    counts = {"times": options.times, "queries": options.queries, "events": options.events, "seed": options.seed}
    report = check_leak(options.run, device=options.device, **counts)
    record = {"run": options.run, "leak": False, "times": report.times, "scores": report.scores}
    return CommandResult(record, lines(str(report)))
