"""What a table's key must be, for its rows to be read in order and none to be passed over."""

from __future__ import annotations

from typing import Any

from hopstate.errors import ConfigError, MissingFileError

_COLUMN = """select a.atttypid::regtype::text, a.attnotnull and exists (
        select from pg_index i where i.indrelid = a.attrelid and i.indisunique and i.indisvalid
        and i.indnkeyatts = 1 and i.indkey[0] = a.attnum and i.indpred is null)
    from pg_attribute a where a.attrelid = %s and a.attname = %s and not a.attisdropped"""
# sequences that a default names, and the one of an identity column
_SEQUENCES = """select s.seqrelid::regclass::text, s.seqcache, s.seqincrement, s.seqcycle from pg_sequence s
    where s.seqrelid in (
        select d.objid from pg_depend d join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
        where d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i') and d.refobjid = %(table)s
        and a.attname = %(column)s
        union select d.refobjid from pg_depend d join pg_attrdef f on f.oid = d.objid
        join pg_attribute a on a.attrelid = f.adrelid and a.attnum = f.adnum
        where d.classid = 'pg_attrdef'::regclass and d.refclassid = 'pg_class'::regclass and f.adrelid = %(table)s
        and a.attname = %(column)s)"""
_INSERTING = """select virtualtransaction from pg_locks
    where locktype = 'relation' and relation = %s::regclass and mode = 'RowExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())"""


def check_key(db: Any, table: str, column: str) -> None:
    """Refuse a key by which rows could be passed over.

    Args:
        db: a connection.
        table, column: plain names.

    Raises:
        MissingFileError: there is no such table.
        ConfigError: no such column, or one that is no whole number, not unique, or whose sequence hands numbers out
            ahead of their use, downwards or again.
    """
    (oid,) = db.execute("select to_regclass(%s)::oid", (table,)).fetchone()
    if oid is None:
        raise MissingFileError(f"there is no table {table}")
    where = {"table": oid, "column": column.lower()}
    found = db.execute(_COLUMN, tuple(where.values())).fetchone()
    if found is None:
        raise ConfigError(f"table {table} has no column {column}; name its key with key=COLUMN")
    kind, unique = found
    if kind not in ("smallint", "integer", "bigint"):
        raise ConfigError(f"the key of a source grows by whole numbers; {table}.{column} is of type {kind}")
    if not unique:
        raise ConfigError(
            f"{table}.{column} is not the primary key, nor unique and not null: rows could be passed over"
        )
    for name, cache, step, cycles in db.execute(_SEQUENCES, where).fetchall():
        if cache > 1:
            raise ConfigError(
                f"sequence {name} of {table}.{column} hands out {cache} numbers at once, so that rows come behind "
                f"later ones and would be passed over: alter sequence {name} cache 1, and connect its clients anew"
            )
        if step < 1 or cycles:
            raise ConfigError(f"sequence {name} of {table}.{column} does not only grow; a source needs a key that does")


def inserting(db: Any, table: str) -> frozenset[str]:
    """Return the transactions that hold a table to change rows in it."""
    return frozenset(one for (one,) in db.execute(_INSERTING, (table,)).fetchall())
