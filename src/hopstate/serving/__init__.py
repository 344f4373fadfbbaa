"""A live run: events in as they happen, none lost; answers out; a replay of its log gives the same scores bit for bit.

| module | content |
|---|---|
| `log`, `postgres_log` | commits of events, durable and each event once: in a file, in PostgreSQL |
| `event_parser`, `transaction` | from the JSON of a request to what is committed |
| `live` | the state machine over a log: score, commit, observe; recovery; read replicas |
| `snapshots` | the last three snapshots, and how much of the log may be cut |
| `repair` | what is intact of a damaged log |
| `replay` | scores of a log's events, computed again |
| `kafka`, `sinks` | events from a topic; scores to a topic or to Parquet files |
| `engine` | the queue in front of a live run |
| `service`, `request_guard` | HTTP: routes, requests and responses; what is refused by a request's head |
| `quality`, `metrics` | online metrics against recency and alarms; Prometheus, `/state`, log lines |

The model's state follows from the log alone, so recovery is a replay and so is an audit.
"""
