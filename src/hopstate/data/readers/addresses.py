"""Tables of databases by address: `duckdb://FILE/TABLE`, `sqlite://FILE/TABLE`, `postgresql://USER@HOST/DB?table=NAME`.

A table is copied once, as one snapshot and in the order that the database keeps its rows in, to a Parquet file, and
that is read as any other.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from hopstate.errors import ConfigError, DataError, HopstateError, MissingExtraError, MissingFileError, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMES = ("duckdb://", "sqlite://", "postgresql://", "postgres://")
_FORMS = "duckdb://FILE/TABLE, sqlite://FILE/TABLE or postgresql://USER@HOST/DATABASE?table=NAME"
_ROWS = 1 << 16  # in work at a time


def is_address(source: object) -> bool:
    """Return whether a source is the address of a table in a database."""
    return isinstance(source, (str, Path)) and str(source).startswith(SCHEMES)


def table_of(address: str) -> str:
    """Return the name of the table.

    Raises:
        ConfigError: the address names none.
    """
    return _parts(address)[1]


def shown(address: str) -> str:
    """Return an address as it may be shown and kept: without user and password."""
    if not address.startswith(("postgres://", "postgresql://")):
        return address
    parts = urlsplit(address)
    host = f"{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}"
    return f"postgresql://{host}{parts.path}?table={table_of(address)}"


def check_no_password(address: str) -> None:
    """Raise ConfigError where an address holds a password, which a run folder would keep."""
    if not address.startswith(("postgres://", "postgresql://")):
        return
    parts = urlsplit(address)
    if parts.password or any(key == "password" for key, _ in parse_qsl(parts.query)):
        raise ConfigError(
            "the run folder keeps --data, and this address holds a password; leave it out and give it as PGPASSWORD or "
            "in ~/.pgpass"
        )


@contextlib.contextmanager
def fetched(address: str) -> Iterator[Path]:
    """Give a Parquet file of the table, called as the table is, for as long as it is read."""
    with tempfile.TemporaryDirectory(prefix="hopstate-") as folder:
        path = Path(folder) / f"{''.join(c if c.isalnum() else '_' for c in table_of(address))}.parquet"
        fetch(address, path)
        with called(path, address):
            yield path


@contextlib.contextmanager
def called(path: Path, address: str) -> Iterator[None]:
    """Let errors name the address where they name the copy of its table."""
    try:
        yield
    except HopstateError as error:
        raise type(error)(str(error).replace(str(path), shown(address))) from error


def fetch(address: str, path: Path) -> None:
    """Write a table of a database as a Parquet file.

    Raises:
        ConfigError: the address cannot be read.
        MissingExtraError: what reads such databases is not installed.
        MissingFileError: no such file or table.
        DataError: a column that is no table's, such as one of bytes.
        StorageError: the server does not answer.
    """
    place, table = _parts(address)
    if address.startswith("duckdb://"):
        _from_duckdb(place, table, path)
    elif address.startswith("sqlite://"):
        _from_sqlite(place, table, path)
    else:
        _from_postgres(place, table, path, shown(address))


def _parts(address: str) -> tuple[str, str]:
    """Return the file, or libpq's address, and the table."""
    if address.startswith(("postgres://", "postgresql://")):
        try:
            parts = urlsplit(address)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            options = {}
        if options.get("table"):
            table = options.pop("table")
            return parts._replace(query=urlencode(options)).geturl(), table
    else:
        file, _, table = address.partition("://")[2].rpartition("/")
        if file and table:
            return file, table
    raise ConfigError(f"a table of a database is {_FORMS}; this address names none")


def _quoted(table: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def _there(file: str) -> None:
    if not Path(file).is_file():
        raise MissingFileError(f"no file called {file}; a table of a database is {_FORMS}")


def _from_duckdb(file: str, table: str, path: Path) -> None:
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("duckdb:// needs duckdb: pip install 'hopstate[prepare]'") from None
    _there(file)
    try:
        with duckdb.connect(file, read_only=True) as connection:  # DuckDB reads rows in the order of their entering
            out = str(path).replace("'", "''")
            connection.execute(f"COPY (SELECT * FROM {_quoted(table)}) TO '{out}' (FORMAT parquet)")
    except duckdb.CatalogException as error:
        raise MissingFileError(f"{file} has no table {table!r}: {_first(error)}") from None
    except duckdb.Error as error:
        raise StorageError(f"{file} cannot be read as a file of DuckDB: {_first(error)}") from error


def _from_sqlite(file: str, table: str, path: Path) -> None:
    import sqlite3

    import pyarrow as pa

    _there(file)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{Path(file).resolve()}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")  # both readings see the same rows
            name = _quoted(table)
            columns = [row[0] for row in connection.execute(f"SELECT * FROM {name} LIMIT 0").description]
            fields = [(column, _kind(connection, file, table, column)) for column in columns]
            try:
                rows = connection.execute(f"SELECT * FROM {name} ORDER BY rowid")
            except sqlite3.OperationalError:  # a view, or a table without rowid
                rows = connection.execute(f"SELECT * FROM {name}")
            _write(rows, pa.schema(fields), path)
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            raise MissingFileError(f"{file} has no table {table!r}") from None
        raise StorageError(f"{file} cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StorageError(f"{file} cannot be read as a file of SQLite: {error}") from error


def _kind(connection: Any, file: str, table: str, column: str) -> pa.DataType:
    """Return the type that all cells of a column of SQLite have, text where they are of several."""
    import pyarrow as pa

    own = '"' + column.replace('"', '""') + '"'
    kinds = {row[0] for row in connection.execute(f"SELECT DISTINCT typeof({own}) FROM {_quoted(table)}")} - {"null"}
    if "blob" in kinds:
        raise DataError(f"{file}: column {column!r} of {table} holds bytes; leave it out by a view")
    if not kinds or "text" in kinds:
        return pa.string()
    return pa.int64() if kinds == {"integer"} else pa.float64()


def _from_postgres(address: str, table: str, path: Path, place: str) -> None:
    try:
        import psycopg
    except ImportError:
        raise MissingExtraError("PostgreSQL needs psycopg: pip install 'hopstate[postgres]'") from None
    try:
        with psycopg.connect(address, connect_timeout=10) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            name = _quoted(table)
            is_table = connection.execute(
                "SELECT relkind IN ('r', 'm') FROM pg_class WHERE oid = to_regclass(%s)", (name,)
            ).fetchone()
            if is_table is None:
                raise MissingFileError(f"{place}: there is no such table")
            with connection.cursor("hopstate", scrollable=False) as rows:
                rows.itersize = _ROWS
                rows.execute(f"SELECT * FROM {name}" + (" ORDER BY ctid" if is_table[0] else ""))
                found = [(column.name, _type(column.type_code)) for column in rows.description or ()]
                import pyarrow as pa

                _write(rows, pa.schema(found), path)
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"{place} cannot be read: {_first(error)}") from None
    except psycopg.Error as error:
        raise StorageError(f"{place} cannot be read ({_first(error)}); see whether the server runs") from error


def _type(code: int) -> pa.DataType:
    """Return what a column of PostgreSQL becomes, by the number of its type there."""
    import pyarrow as pa

    known = {16: pa.bool_(), 1082: pa.date32(), 1114: pa.timestamp("us"), 1184: pa.timestamp("us", "UTC")}
    known |= dict.fromkeys((20, 21, 23), pa.int64()) | dict.fromkeys((700, 701, 1700), pa.float64())
    if code == 17:
        raise DataError("a column holds bytes; leave it out by a view")
    return known.get(code, pa.string())


def _write(rows: Any, schema: pa.Schema, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema) as writer:
        while some := rows.fetchmany(_ROWS):
            columns = [_plain(values, kind) for values, kind in zip(zip(*some), schema.types)]
            writer.write_table(pa.table(columns, schema=schema))


def _plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_string(kind):
        return pa.array([None if v is None else str(v) for v in values], kind)
    if pa.types.is_floating(kind):
        return pa.array([None if v is None else float(v) for v in values], kind)
    return pa.array(values, kind)


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
