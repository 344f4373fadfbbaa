"""Queries of runs with event relations, offline and live."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hopstate.cli.main import main
from hopstate.datasets.temporal_generators import OrderConfig, generate_orders
from hopstate.errors import ConfigError, DataError, HopstateWarning
from hopstate.methods import get_method
from hopstate.methods.method import Context
from hopstate.runs.explain import explain
from hopstate.runs.run import Run, fit
from made_events import LOOP, RANDOM, SMALL

READ = {"read.relation_column": "what", "read.node_type_column": "st,tt"}
NAMES = ("order", "pay", "review", "transfer", "visit")


def table(first: int, stop: int) -> pd.DataFrame:
    stream = generate_orders(OrderConfig(num_customers=40, num_shops=15, num_events=900))
    names = np.array([f"c{i}" for i in range(40)] + [f"s{i}" for i in range(15)])
    types, rows = np.array(stream.node_type_names), slice(first, stop)
    src, dst = stream.src[rows], stream.dst[rows]
    ends = {"source": names[src], "target": names[dst], "time": stream.t[rows]}
    typed = {"st": types[stream.node_type[src]], "tt": types[stream.node_type[dst]]}
    return pd.DataFrame({**ends, "what": np.array(stream.relation_names)[stream.relation[rows]], **typed})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("typed")
    table(0, 800).to_csv(home / "own.csv", index=False)
    config = {**LOOP, **RANDOM, **SMALL["pair-trees"], **READ}
    return fit("pair-trees", home / "own.csv", out=home / "run", config=config)


def test_scores_use_the_given_relation(run: Run) -> None:
    pairs = [("c1", "s2"), ("c3", "s4")]
    found = run.score(pairs, relation=["pay", "order"])
    assert found["relation"].tolist() == ["pay", "order"]
    named = pd.DataFrame(pairs, columns=["source", "target"]).assign(what=["pay", "order"])
    assert run.score(named)["score"].tolist() == found["score"].tolist()
    assert run.score(pairs, relation="pay")["score"][0] == pytest.approx(found["score"][0])


@pytest.mark.parametrize(("relation", "error"), [(None, ConfigError), ("paid", DataError)])
def test_a_query_needs_a_known_relation(run: Run, relation, error) -> None:
    with pytest.raises(error, match="pay"):
        run.score([("c1", "s2")], relation=relation)


def test_candidates_have_the_types_of_the_relation(run: Run) -> None:
    assert run.rank("c1", relation="pay", top=None)["dst"].str.startswith("s").all()
    friends = run.rank("c1", relation="transfer", top=None)
    assert friends["dst"].str.startswith("c").all()
    scores = run.score([("c1", name) for name in friends["dst"]], relation="transfer")["score"]
    assert scores.tolist() == pytest.approx(friends["score"].tolist(), rel=1e-5)


def test_relations_of_a_pair_are_ranked(run: Run) -> None:
    found = run.rank("c1", predict="relation", candidates=["s2", "s3"])
    assert (found["probability"][found["relation"] == "transfer"] == 0).all()  # no shop is the target of a transfer
    for target, part in found.groupby("dst"):
        assert sorted(part["relation"]) == list(NAMES)
        assert part["probability"].sum() == pytest.approx(1)
        best = run.score([("c1", target)], relation=part["relation"].iloc[0])["score"][0]
        assert part["probability"].tolist() == sorted(part["probability"], reverse=True)
        assert best == pytest.approx(part["score"].iloc[0])
    with pytest.raises(ConfigError, match="candidates"):
        run.rank("c1", predict="relation")


def test_a_relation_without_a_training_event_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    events = table(0, 300)
    events.loc[298:, "what"] = "refund"
    settings = {**LOOP, **RANDOM, **READ}
    settings["loop"] = settings["loop"] | {"progress": True}
    fit("recency", events, out=tmp_path / "run", config=settings)
    assert "refund" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["ctdg-ssm", "graphmixer", "pair-trees"])
def test_an_explanation_uses_the_given_relation(method: str, tmp_path: Path) -> None:
    own = fit(method, table(0, 300), out=tmp_path / "run", config={**LOOP, **RANDOM, **SMALL[method], **READ})
    for relation in ("pay", "order"):
        found = explain(own.path, "c1", "s2", relation=relation)
        assert found.score == pytest.approx(own.score([("c1", "s2")], relation=relation)["score"][0], rel=1e-5)
        assert np.isfinite(found.events["contribution"]).all()
        assert len(found.events)
    with pytest.raises(ConfigError, match="relation"):
        explain(own.path, "c1", "s2")
    reasons = own.rank("c1", relation="pay", top=2, explain=True)["why"]
    assert reasons.str.len().min() > 0


def test_later_events_need_the_relation(run: Run, tmp_path: Path, capsys) -> None:
    later = table(800, 900)
    scores = run.score([("c1", "s2")], relation="pay", events=later)
    assert scores["t"][0] > later["time"].max()
    with pytest.raises(DataError, match="relation"):
        run.score([("c1", "s2")], relation="pay", events=later.assign(what="unknown"))
    later.drop(columns="what").to_csv(tmp_path / "later.csv", index=False)
    assert main(["rank", str(run.path), "--source", "c1", "--relation", "pay", "--events", str(tmp_path / "later.csv")])
    assert "what" in capsys.readouterr().err


def test_a_method_without_relations_rejects_them(tmp_path: Path) -> None:
    method = replace(get_method("recency"), relations=False)
    stream, context = generate_orders(OrderConfig(num_events=50)), Context(run=tmp_path, cache=tmp_path)
    with pytest.raises(ConfigError, match="relation_column none"):
        method.task(stream, method.config(data="orders"), context)
    plain = stream.with_(relation=None, relation_names=())
    with pytest.raises(ConfigError, match="node_type_column none"):
        method.task(plain, method.config(data="orders"), context)


def test_an_untyped_run_rejects_relations(tmp_path: Path) -> None:
    own = fit("recency", table(0, 300), out=tmp_path / "run", config={**LOOP, **RANDOM})
    with pytest.raises(ConfigError, match="relation"):
        own.score([("c1", "s2")], relation="pay")


def test_static_links_reject_relations_of_pairs(tmp_path: Path) -> None:
    """Their scores would be equal for every relation."""
    edges = table(0, 300).drop(columns=["time", "st", "tt"]).rename(columns={"what": "relation"})
    edges.to_csv(tmp_path / "edges.csv", index=False)
    config = {"read.relation_column": "relation", "task": "link", "model.dim": 8, **LOOP}
    own = fit("rgcn", tmp_path / "edges.csv", out=tmp_path / "run", config=config)
    pairs = edges.head(3)
    for given in ({"pairs": pairs}, {"pairs": pairs[["source", "target"]], "relation": "pay"}):
        with pytest.raises(ConfigError, match="relation"):
            own.score(**given)
    with pytest.raises(ConfigError, match="relation"):
        own.rank("c1", relation="pay")
    assert len(own.score(pairs.drop(columns="relation"))) == 3


def test_live_events_have_relations(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")
    from hopstate.runs.run import score_stream
    from hopstate.serving.live import LiveRun
    from hopstate.serving.replay import replayed

    later = table(800, 900)
    events = later.drop(columns=["st", "tt"]).to_dict("records")
    with LiveRun(run.path, folder=tmp_path / "live", snapshot_every=20) as live:
        found = live.take(events[:30]) + live.take([{"relation": e.pop("what"), **e} for e in map(dict, events[30:])])
        for bad in ({**events[0], "what": "paid"}, {k: v for k, v in events[0].items() if k != "what"}):
            with pytest.raises(DataError, match="what"):
                live.take([{**bad, "time": 10**9}])
    scores = [receipt.score for receipt in found]
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        relations = live.past.relation[-len(later) :]
        assert [live.past.relation_names[r] for r in relations] == later["what"].tolist()
    assert [s for part in replayed(run.path, tmp_path / "live") for s in part["score"].tolist()] == scores
    offline = score_stream(run.path, later, ignore_state=True, save=tmp_path / "state")
    assert offline["score"].tolist() == pytest.approx(scores, rel=1e-5)


@pytest.mark.parametrize("cut", [1, 3])
def test_new_live_nodes_have_the_types_of_their_first_relation(run: Run, cut: int, tmp_path: Path) -> None:
    pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")
    from hopstate.serving.live import LiveRun

    last = int(table(799, 800)["time"][0])
    rows = [("c98", "s98", "order"), ("c99", "c98", "transfer"), ("s98", "s97", "transfer"), ("c1", "s97", "visit")]
    events = [dict(zip(("source", "target", "what"), row), time=last + i) for i, row in enumerate(rows, 1)]
    expected = {"c98": "customer", "c99": "customer", "s98": "shop", "s97": "customer"}  # targets of transfers
    with LiveRun(run.path, folder=tmp_path / "live") as live:
        live.take(events[:cut])
        live.take(events[cut:])
        past = live.past
        rows_of = past.node_ids.rows(np.array(list(expected)))
        assert [past.node_type_names[k] for k in past.node_type[rows_of]] == list(expected.values())
    later = pd.DataFrame(events).assign(st="", tt="")
    with pytest.warns(HopstateWarning, match="c98"):
        friends = run.rank("c1", relation="transfer", events=later, top=None)["dst"].tolist()
    assert {"c98", "c99", "s97"} <= set(friends)
    assert "s98" not in friends


def test_http_queries_have_relations(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")
    from fastapi.testclient import TestClient

    from hopstate.serving.engine import ServiceEngine
    from hopstate.serving.live import LiveRun
    from hopstate.serving.service import service

    with TestClient(service(ServiceEngine(lambda: LiveRun(run.path, folder=tmp_path)), name="orders")) as client:
        found = client.post("/rank", json={"source": "c1", "relation": "pay", "top": 3}).json()["ranked"]
        expected = run.rank("c1", relation="pay", top=3)
        assert [row["dst"] for row in found] == expected["dst"].tolist()
        query = {"source": "c1", "predict": "relation", "candidates": ["s2"]}
        ranked = client.post("/rank", json=query).json()["ranked"]
        assert sorted(row["relation"] for row in ranked) == list(NAMES)
        assert client.post("/rank", json={"source": "c1", "relation": "paid"}).status_code == 422
        columns = {"source": "c1", "target": "s2", "relation": "pay"}
        inputs = [{"name": k, "shape": [1], "datatype": "BYTES", "data": [v]} for k, v in columns.items()]
        score = client.post("/v2/models/orders/infer", json={"inputs": inputs}).json()["outputs"][0]["data"][0]
        assert score == pytest.approx(run.score([("c1", "s2")], relation="pay")["score"][0])


def test_a_live_query_without_a_relation_names_the_field(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("apsw", reason="needs apsw: pip install 'hopstate[serve]'")
    pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
    from fastapi.testclient import TestClient

    from hopstate.serving.engine import ServiceEngine
    from hopstate.serving.live import LiveRun
    from hopstate.serving.service import service

    with TestClient(service(ServiceEngine(lambda: LiveRun(run.path, folder=tmp_path / "live")), name="run")) as client:
        assert client.post("/rank", json={"source": "c1", "relation": "pay"}).status_code == 200
        refused = client.post("/rank", json={"source": "c1"})
    assert refused.status_code == 422
    assert "relation: got none" in refused.json()["error"]
    assert "--" not in refused.json()["error"]  # not an option of the command line
