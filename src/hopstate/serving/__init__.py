"""A live run: events in as they happen, none lost; answers out; a replay of the log gives the same, bit for bit.

| what | where |
|---|---|
| what a log is: commits of events, durable and once each | `event_log.EventLog` |
| logs in a file, in PostgreSQL | `log.SqliteLog`, `postgres_log.PostgresLog` |
| one of them by its place | `logs.open_log` |
| the state machine over it: score, commit, observe; snapshots and recovery | `live.LiveRun` |
| snapshots, the last three | `snapshots.keep`, `snapshots.newest` |
| events from elsewhere, and scores to elsewhere | `sources`, `pump.IngestLoop`, `sinks` |
| it beside a log that another process writes | `replica.Replica` |
| what a log's events were scored, again | `replaying.replayed` |
| it behind a queue; the service: the doors of `hopstate serve` | `doors.ServiceEngine`, `service.service` |
| lines of what it does | `lines.StructuredLogger` |

In come events as JSON objects with the columns of the run's own file; out go positions in the log, and scores. The
model's state follows from the log alone, so recovery is a replay and so is an audit.
"""
