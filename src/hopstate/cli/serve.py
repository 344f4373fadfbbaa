"""`hopstate serve RUN`: events in and answers out over HTTP; `hopstate replay RUN`: what they were scored, again."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hopstate.cli.commands import DONE, FAILED, INTERRUPTED, CommandParser, CommandResult, lines, say
from hopstate.errors import ConfigError, MissingExtraError
from hopstate.io.opening import read_text

if TYPE_CHECKING:
    import uvicorn

    from hopstate.serving.engine import ServiceEngine
    from hopstate.serving.live import LiveRun

_HERE = "127.0.0.1"
_TURN = 0.0005  # seconds for which one thread keeps the interpreter while another waits to read, answer or sync
SERVER: dict[str, Any] = {
    "http": "h11",  # bounds the head of a request while it arrives, which httptools does not
    "h11_max_incomplete_event_size": 128 << 10,
    "ws": "none",
    "log_config": None,  # see `StructuredLogger.take_warnings`
    "access_log": False,
    "limit_concurrency": 800,  # connections; below the usual limit of 1,024 open files of a process
    "timeout_graceful_shutdown": 5,  # seconds in which answers that are under way may be fetched once it is to stop
}


def run(argv: list[str]) -> CommandResult:
    return {"serve": _serve, "replay": _replay}[argv[0]](argv[1:])


def _parser(command: str, what: str) -> argparse.ArgumentParser:
    parser = CommandParser(prog=f"hopstate {command}", description=what, allow_abbrev=False)
    parser.add_argument("run", help="run folder written by `hopstate fit`, of a temporal method for links")
    parser.add_argument("--folder", default=None, help="folder of the log and its snapshots (default: RUN/live)")
    log = "address of the log: postgresql://USER@HOST/DATABASE?log=NAME (default: SQLite in the folder)"
    parser.add_argument("--log", default=None, metavar="ADDRESS", help=log)
    parser.add_shared("--device", "--method")
    return parser


def _serve(argv: list[str]) -> CommandResult:
    o = _options().parse_args(argv)
    if o.repair:
        return _repair(o)
    if o.replica and (o.source or o.sink or o.retention):
        raise ConfigError(
            "--source, --sink and --retention cannot be used with --replica. Give them to the writing service"
        )
    if not 0 <= o.port < 1 << 16:
        raise ConfigError(f"--port is a number from 0 to 65535; got {o.port}")
    if not 0 < o.deadline < float("inf"):
        raise ConfigError(f"--deadline is a number of seconds above 0; got {o.deadline}")
    if o.source and o.late == "reject":
        raise ConfigError("--late reject cannot be used with --source. Give --late clamp or --late dead-letter")
    token = None if o.token_file is None else read_text(o.token_file).strip()
    if token == "" or (token is None and o.host != _HERE):
        raise ConfigError("anyone on the network could read and write. Give a --token-file with a token in it")
    place = _bound(o.host, o.port)  # before anything that takes long
    try:
        return _served(o, token, place)
    except BaseException:
        place.close()
        raise


def _options() -> argparse.ArgumentParser:
    parser = _parser("serve", "Accept events durably and answer queries over HTTP. Ctrl-C or TERM stops it.")
    parser.add_argument("--host", default=_HERE, help=f"address to listen on (default: {_HERE}, this machine only)")
    parser.add_argument("--port", type=int, default=8080, help="port (default: 8080; 0 uses a free one)")
    parser.add_argument("--token-file", default=None, help="file with the bearer token of requests")
    names = "further host names to accept, for example those of a proxy (default: the address and localhost)"
    parser.add_argument("--allowed-hosts", nargs="+", default=[], metavar="NAME", help=names)
    late = "events earlier than the last one: reject (default), clamp (use its time), dead-letter (store apart)"
    parser.add_argument("--late", choices=("reject", "clamp", "dead-letter"), default="reject", help=late)
    skew = "how far ahead of the clock an event may be: auto (one day if times are dates), 12h, a number, or never"
    parser.add_argument("--max-clock-skew", default="auto", metavar="DURATION", help=skew)
    fields = "fields that the run does not read: refuse the event (default) or ignore; those of --source are ignored"
    parser.add_argument("--unknown-fields", choices=("refuse", "ignore"), default="refuse", help=fields)
    every = "events between two snapshots (default: 100000)"
    parser.add_argument("--snapshot-every", type=int, default=100_000, metavar="N", help=every)
    retention = (
        "events of the log to keep beyond those that snapshots need: a number, or a time such as 30d (default: all)"
    )
    parser.add_argument("--retention", default=None, metavar="N|30d", help=retention)
    scored = "score events when they arrive: always (default; a request can skip it) or never, which is faster"
    parser.add_argument("--score-events", choices=("always", "never"), default="always", help=scored)
    replica = "read replica: follow the log of another service and answer queries, without events (folder: RUN/replica)"
    parser.add_argument("--replica", action="store_true", help=replica)
    mend = "keep the intact part of a damaged log, report what is lost, and exit; the damaged log is renamed"
    parser.add_argument("--repair", action="store_true", help=mend)
    deadline = "seconds after which an unanswered request gets status 503 (default: 10)"
    parser.add_argument("--deadline", type=float, default=10.0, metavar="SECONDS", help=deadline)
    log_help = "format of log lines on stderr for requests, commits, alarms and errors: json, text, or off (default)"
    parser.add_argument("--log-format", choices=("json", "text", "off"), default="off", help=log_help)
    source = "also read events from kafka://HOST:PORT/TOPIC"
    parser.add_argument("--source", default=None, metavar="ADDRESS", help=source)
    sink = "write scores to a folder (Parquet) or to kafka://HOST:PORT/TOPIC"
    parser.add_argument("--sink", default=None, metavar="PLACE", help=sink)
    return parser


def _repair(o: argparse.Namespace) -> CommandResult:
    from hopstate.serving.repair import repair

    report = repair(o.run, o.folder, o.log, device=o.device)
    return CommandResult(dataclasses.asdict(report), lines(str(report)))


def _served(o: argparse.Namespace, token: str | None, place: socket.socket) -> CommandResult:
    try:
        import uvicorn

        from hopstate.serving.engine import Limits, ServiceEngine
        from hopstate.serving.live import LiveRun, Replica
        from hopstate.serving.metrics import StructuredLogger
        from hopstate.serving.service import service
        from hopstate.serving.sinks import open_sink
    except ImportError as error:
        raise MissingExtraError(f"serving needs {error.name}: pip install 'hopstate[serve]'") from None

    options = {"late": o.late, "snapshot_every": o.snapshot_every, "device": o.device, "log": o.log}
    options |= {"retention": o.retention, "max_clock_skew": o.max_clock_skew, "unknown_fields": o.unknown_fields}
    options |= {} if o.sink is None else {"sink": open_sink(o.sink)}
    open_run: Callable[[], LiveRun] = partial(Replica if o.replica else LiveRun, o.run, folder=o.folder, **options)
    lines = StructuredLogger(o.log_format)
    lines.take_warnings()
    limits, score_events = Limits(deadline=o.deadline), o.score_events == "always"
    engine = ServiceEngine(open_run, limits, score_events=score_events, source=o.source, lines=lines)
    engine.open()
    engine.warm_up()
    _make_even()
    _warn_unknown_settings(engine.live)
    name = Path(os.path.abspath(o.run)).name
    app = service(engine, name=name, token=token, hosts=_names(o.host, o.allowed_hosts))
    port = place.getsockname()[1]
    url = f"http://{o.host}:{port}"
    server = uvicorn.Server(uvicorn.Config(app, host=o.host, port=port, **SERVER))

    place.listen(2048)  # who asks from now on waits until the service takes the call, and is not refused
    announce = partial(print, f"serving {name} at {url} (page: /, API: /docs)", flush=True)
    return CommandResult({"serving": name, "url": url}, announce, then=partial(_until_stopped, server, place, engine))


def _until_stopped(server: uvicorn.Server, place: socket.socket, engine: ServiceEngine) -> int:
    from hopstate.training.trainer import signals_to

    def stop(number: int) -> None:  # uvicorn raises the signal that stopped it once more: it has been heard
        server.should_exit = True

    with place, signals_to(stop):
        server.run(sockets=[place])
    gc.unfreeze()  # what it holds is let go as at any other end, and nothing tells of leaks
    return DONE if engine.closed else INTERRUPTED if server.force_exit else FAILED


def _names(host: str, more: list[str]) -> list[str] | None:
    if host in ("0.0.0.0", "::") and not more:  # it asks for a token, which pages of other sites do not have
        return None
    return [host, "localhost", _HERE, "[::1]", *more]


def _make_even() -> None:
    sys.setswitchinterval(_TURN)
    gc.collect()
    gc.freeze()  # modules and weights stay: to look through them for garbage again and again takes 0.2 s each time


def _bound(host: str, port: int) -> socket.socket:
    place = None
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        place = socket.socket(family, kind, proto)  # the protocol is TCP: only with it small answers are sent at once
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
    except (OSError, UnicodeError) as error:
        if place is not None:
            place.close()
        raise ConfigError(
            f"nothing can listen at port {port} of {host} ({error}); give another --port or --host"
        ) from None
    return place


def _warn_unknown_settings(live: LiveRun) -> None:
    from hopstate.runs.load import saved_state_folder

    kept = saved_state_folder(live.run)
    if kept is not None and not live.position and not live.is_replica:
        say(
            f"note: a live run begins at the end of the run's own data. Events that `hopstate stream` added in {kept} "
            "are not part of it: send them first if it needs them"
        )


def _replay(argv: list[str]) -> CommandResult:
    parser = _parser("replay", "Compute the scores of a log's events again, as they were when the events came.")
    parser.add_argument("--out", required=True, help="file to write: .csv, .csv.gz, .tsv, .parquet or .jsonl")
    o = parser.parse_args(argv)
    import pandas as pd

    from hopstate.io.output import check_table_path, write_table
    from hopstate.serving.replay import replayed

    check_table_path(o.out)
    tables = list(replayed(o.run, o.folder, log=o.log, device=o.device))
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["position", "score"])
    write_table(table, Path(o.out))
    begin = int(table["position"].iloc[0]) if len(table) else 0
    skipped = f", from event {begin} on: what came before was cut" if begin else ""
    record = {"out": o.out, "rows": len(table), "first": begin}
    return CommandResult(record, lines(f"{len(table)} events scored again{skipped}: {o.out}"))
