"""The routes of the Open Inference Protocol, with its Python client and with plain HTTP."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import until

from made_events import small_run

pytest.importorskip("fastapi", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("apsw", reason="needs the extra serve: pip install 'hopstate[serve]'")
pytest.importorskip("uvicorn", reason="needs the extra serve: pip install 'hopstate[serve]'")

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hopstate.cli.serve import SERVER
from hopstate.runs.run import Run
from hopstate.serving.engine import ServiceEngine
from hopstate.serving.live import LiveRun
from hopstate.serving.service import service


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = small_run("recency", tmp_path_factory.mktemp("run"))
    run.score([("u1", "v1")])
    return run


@pytest.fixture
def app(run: Run, tmp_path: Path) -> FastAPI:
    return service(ServiceEngine(partial(LiveRun, run.path, folder=tmp_path)), name="run")


def column(name: str, data: list[Any], datatype: str = "BYTES", shape: list[int] | None = None) -> dict[str, Any]:
    return {"name": name, "shape": shape or [len(data)], "datatype": datatype, "data": data}


def test_metadata_and_health(app: FastAPI) -> None:
    with TestClient(app) as client:
        assert client.get("/v2").json()["name"] == "hopstate"
        model = client.get("/v2/models/run").json()
        (version,) = model["versions"]
        assert client.get(f"/v2/models/run/versions/{version}").json() == model
        for path in ("/v2/models/run/ready", f"/v2/models/run/versions/{version}/ready"):
            assert client.get(path).json() == {"name": "run", "ready": True}
        for path in ("/v2/models/other", "/v2/models/run/versions/x", "/v2/nowhere"):
            answer = client.get(path)
            assert (answer.status_code, answer.json().keys()) == (404, {"error"})
        assert client.post("/v2").json().keys() == {"error"}


def test_data_are_flat_or_nested(app: FastAPI, run: Run) -> None:
    expected = run.score([("u1", "v2"), ("u3", "v3")])["score"].tolist()
    with TestClient(app) as client:
        for source, target in (
            (column("source", ["u1", "u3"]), column("target", ["v2", "v3"])),
            (column("source", [["u1"], ["u3"]], shape=[2, 1]), column("target", ["v2", "v3"], shape=[2, 1])),
        ):
            answer = client.post("/v2/models/run/infer", json={"inputs": [source, target]}).json()
            assert answer["outputs"][0]["data"] == expected
            assert [one["name"] for one in answer["outputs"]] == ["score", "probability"]
            request = {"inputs": [source, target], "outputs": [{"name": "probability"}]}
            (only,) = client.post("/v2/models/run/infer", json=request).json()["outputs"]
            assert only["name"] == "probability"


BAD: dict[str, Any] = {
    "texts as numbers": column("source", ["u1"], "INT64"),
    "numbers as texts": column("source", [1]),
    "booleans": column("source", [True], "INT64"),
    "floats for ids": column("source", [1.0], "FP64"),
    "an unknown datatype": column("source", ["u1"], "TEXT"),
    "a value outside its datatype": column("source", [-1], "UINT8"),
    "rows of two": column("source", [["u1", "u2"]], shape=[1, 2]),
    "another shape": column("source", ["u1"], shape=[2]),
    "a cube": column("source", [[["u1"]]], shape=[1, 1, 1]),
    "rows in a flat shape": column("source", [["u1"]], shape=[1]),
    "another name": column("sources", ["u1"]),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_inference_requests_are_rejected(what: str, app: FastAPI) -> None:
    with TestClient(app) as client:
        answer = client.post("/v2/models/run/infer", json={"inputs": [BAD[what], column("target", ["v1"])]})
        assert (answer.status_code, answer.json().keys()) == (422, {"error"})


# ---- the client -----------------------------------------------------------------------------------------------
@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    place = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, **SERVER))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[place])))
    thread.start()
    until(lambda: server.started)
    host, port = place.getsockname()
    yield f"{host}:{port}"
    server.should_exit = True
    thread.join(60)


def test_tritonclient_queries_the_service(url: str, run: Run) -> None:
    triton = pytest.importorskip("tritonclient.http", reason="needs tritonclient: pip install 'tritonclient[http]'")
    client = triton.InferenceServerClient(url)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("run")
    assert client.is_model_ready("run", "1")
    assert client.get_server_metadata()["name"] == "hopstate"
    assert client.get_model_metadata("run", "1")["versions"] == ["1"]
    columns = {"source": ["u1", "u3"], "target": ["v2", "v3"]}

    def inputs(shape: list[int], *, binary: bool) -> list[Any]:
        made = [triton.InferInput(name, shape, "BYTES") for name in columns]
        for one, values in zip(made, columns.values(), strict=True):
            one.set_data_from_numpy(np.array(values, object).reshape(shape), binary_data=binary)
        return made

    expected = run.score(list(zip(*columns.values(), strict=True)))["score"].to_numpy()
    for shape in ([2], [2, 1]):
        for version in ("", "1"):
            for outputs in (None, [triton.InferRequestedOutput("score", binary_data=False)]):
                found = client.infer("run", inputs(shape, binary=False), model_version=version, outputs=outputs)
                np.testing.assert_allclose(found.as_numpy("score"), expected)
    for bad in (
        lambda: client.infer("run", inputs([2], binary=True)),
        lambda: client.infer("other", inputs([2], binary=False)),
        lambda: client.get_model_metadata("run", "2"),
        lambda: client.get_model_config("run"),
    ):
        with pytest.raises(triton.InferenceServerException) as error:
            bad()
        assert error.value.message()
    client.close()
