"""Tables of PostgreSQL as sources of `hopstate prepare`: the bytes of the same table in a file."""

import pandas as pd
import pytest

pytest.importorskip("duckdb", reason="needs the extra prepare")

from hopstate.data.prepare import prepare
from hopstate.errors import MissingFileError

pytestmark = pytest.mark.slow


def test_a_table_of_postgres_prepared_has_the_bytes_of_its_file(tmp_path, postgres: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    table = pd.DataFrame(
        {"source": ["a", "b", "a c"], "target": ["b", "é", "d"], "time": [3, 1, 1], "feat_0": [0.5, 1, 2]}
    )
    table.to_csv(tmp_path / "met.csv", index=False)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE met (source text, target varchar(9), time bigint, feat_0 numeric)")
        for row in table.itertuples(index=False):
            connection.execute("INSERT INTO met VALUES (%s, %s, %s, %s)", tuple(row))
    prepare(tmp_path / "met.csv", tmp_path / "file")
    prepare(f"{postgres}&table=met", tmp_path / "base")
    for path in (tmp_path / "file").glob("*.npy"):
        assert (tmp_path / "base" / path.name).read_bytes() == path.read_bytes(), path.name
    assert "se%25cret" not in (tmp_path / "base" / "events.json").read_text()
    with pytest.raises(MissingFileError, match="no such table") as told:
        prepare(f"{postgres}&table=absent", tmp_path / "s")
    assert "cret" not in str(told.value)
