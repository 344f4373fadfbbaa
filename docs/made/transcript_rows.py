"""The commands of tests/docs/transcripts.md, which `docs/made/transcripts.py` runs."""
# ruff: noqa: E501 (what is typed stands as it is typed)

from __future__ import annotations

from transcripts import Row, Step

NO_TEST = "no, it is meant to fail"
EXTRAS = "no, it needs extras"
GRAPH = """import numpy as np, pandas as pd

rng = np.random.default_rng(0)
names = np.array([f"paper {i:03d}" for i in range(400)])
field = np.arange(400) % 4
ends = rng.integers(0, 400, (4000, 2))
ends = ends[(field[ends[:, 0]] == field[ends[:, 1]]) | (rng.random(4000) < 0.1)]
x = (rng.normal(size=(400, 4)) + 0.4 * np.eye(4)[field]).round(3)
pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]]}).to_csv("edges.csv", index=False)
pd.DataFrame(x, columns=list("abcd")).assign(id=names).to_csv("features.csv", index=False)
pd.DataFrame({"id": names, "label": np.array(["algebra", "graphs", "logic", "physics"])[field]}).to_csv("labels.csv", index=False)
people = np.array(["alice", "bob", *(f"person {i}" for i in range(58))])
source = rng.integers(0, 60, 1500)
target = (source + rng.integers(1, 5, 1500)) % 60
days = pd.to_datetime(1_700_000_000 + np.sort(rng.integers(0, 10**7, 1500)), unit="s")
pd.DataFrame({"src": people[source], "dst": people[target], "t": days}).to_csv("events.csv", index=False)
"""
FIT = "hopstate fit gcn --data edges.csv --read.features features.csv --read.labels labels.csv --loop.epochs 20 --out runs/gcn"
STREAM = "hopstate fit graphmixer --data events.csv --loop.epochs 2 --evaluation.strategies '[random]' --out runs/mixer"
KEYS = "python -c 'import json, sys; print(*json.load(sys.stdin))'"

ROWS = (
    Row(
        "First commands",
        "`pip install hopstate-0.1.0-py3-none-any.whl` into an empty environment, then:",
        (
            Step("hopstate --version", mark="", same=True),
            Step("hopstate info", keep="^(python|processor|threads|gpu|versions|cache) |selective_scan"),
            Step('python -X importtime -c "import hopstate" 2>&1 | tail -1'),
            Step(GRAPH, python=True),
            Step(
                "hopstate inspect edges.csv --read.features features.csv --read.labels labels.csv --plot card.png",
            ),
            Step("hopstate inspect events.csv --plot events.png", keep="events|nodes|time|ratio|plots"),
        ),
    ),
    Row(
        "The demo",
        "From nothing: a fresh clone, an empty home, no environment; what `make` says of its own commands is cut, and the installation counts in. "
        "Other programs ran on the two cores meanwhile (load 4 to 6) and it took 9.5 minutes by the clock, which the seconds of an epoch are told by, too; with the cores to itself the same took 92 and 101 s by the clock "
        "(`benchmarks/results/2026-11-24-evaluation-cost.md`). The stream's half, and the questions after it, were typed again later that day (`make demo-stream`, 97 s by the clock at load 2).",
        (
            Step(
                "make demo",
                first=70,
                keep="^demo|^[┃│] (method|nagphormer|gmn|sage|dyg-mamba|pair-trees|ctdg-ssm|recency|edgebank|events judged|roc_auc|src|  7) |^Links with|^probability|^report",
                mark="no, minutes",
            ),
            Step(
                ".venv/bin/hopstate explain runs/demo-*-stream/dyg-mamba-split0-seed0 --pair 7,248 --time 2026-03-02 --top 6",
                mark="no, it asks what the demo trained",
            ),
        ),
        cloned=True,
    ),
    Row(
        "Weights travel",
        "A run becomes a folder of safetensors, JSON and NumPy arrays with a card, and a run again. The hub's upload is its library's own; here "
        "a folder stands in for the hub.",
        (
            Step(FIT, keep="suited|epoch|accuracy|majority|folder"),
            Step("hopstate predict runs/gcn --out predictions.csv && head -3 predictions.csv"),
            Step(
                """import hopstate

run = hopstate.load("runs/gcn")
folder = run.save_pretrained("gcn-saved")
print(sorted(path.name for path in folder.iterdir()))
again = hopstate.from_pretrained(folder, out="runs/again", data="edges.csv")
print("the same bits:", again.predict().equals(run.predict()))
""",
                python=True,
            ),
            Step("tail -n +7 gcn-saved/README.md"),
            Step(
                """import pathlib, shutil
import huggingface_hub, hopstate

class Folder(huggingface_hub.HfApi):
    def create_repo(self, repo_id, **_):
        pathlib.Path("hub", repo_id).mkdir(parents=True, exist_ok=True)

    def upload_folder(self, *, repo_id, folder_path, **_):
        return shutil.copytree(folder_path, pathlib.Path("hub", repo_id), dirs_exist_ok=True)

huggingface_hub.HfApi = Folder
print(hopstate.push_to_hub("runs/gcn", "me/gcn"))
""",
                python=True,
                mark=EXTRAS,
            ),
            Step("ls hub/me/gcn", mark="no, it follows what is not run"),
        ),
    ),
    Row(
        "Export",
        "One run on a graph and one on a stream, to both forms, and onnxruntime beside the run's own answers.",
        (
            Step("hopstate export runs/gcn --to torch --out gcn-torch"),
            Step("hopstate export runs/gcn --to onnx --out gcn-onnx"),
            Step(STREAM, keep="suited|test|baseline|better|folder"),
            Step("hopstate export runs/mixer --to onnx --out mixer-onnx"),
            Step(
                """import numpy as np, onnxruntime, torch
import hopstate

inputs = hopstate.export_inputs("runs/gcn")
onnx = onnxruntime.InferenceSession("gcn-onnx/model.onnx").run(None, inputs)[0]
torch_ = torch.export.load("gcn-torch/model.pt2").module()(*map(torch.from_numpy, inputs.values())).detach().numpy()
print(f"gcn, {onnx.shape[0]} nodes: torch.export and ONNX differ by at most {np.abs(onnx - torch_).max():.1e}")
pairs = [("alice", "bob"), ("bob", "person 7"), ("person 3", "alice")]
inputs = hopstate.export_inputs("runs/mixer", pairs)
score = onnxruntime.InferenceSession("mixer-onnx/model.onnx").run(["score"], inputs)[0]
own = hopstate.score("runs/mixer", pairs).score
print(f"graphmixer, {len(pairs)} pairs: ONNX and the run differ by at most {np.abs(score - own).max():.1e}")
""",
                python=True,
            ),
            Step("hopstate export runs/mixer --to torch --out mixer-torch --check", keep="check"),
            Step("hopstate export runs/gcn --to onnx --out gcn-onnx --check", keep="check"),
            Step("hopstate fit recency --data events.csv --out runs/recency -q", keep="accuracy|precision|auc"),
            Step("hopstate export runs/recency --to onnx --out recency-onnx", mark=NO_TEST),
        ),
    ),
    Row(
        "Loggers",
        "All three at once, without a network.",
        (
            Step(
                f"{FIT.replace('runs/gcn', 'runs/logged')} --loop.logger tensorboard,mlflow,wandb -q",
                keep="accuracy|folder|warning|error",
                mark=EXTRAS,
            ),
            Step("ls runs/logged/tensorboard mlflow.db && ls wandb", keep="events|mlflow|offline", mark="no, the same"),
            Step(
                """import mlflow

mlflow.set_tracking_uri("sqlite:///mlflow.db")
runs = mlflow.MlflowClient().search_runs([e.experiment_id for e in mlflow.MlflowClient().search_experiments()])
print(runs[0].info.status, runs[0].data.metrics["chosen/test_accuracy"], runs[0].data.params["model.dim"])
""",
                python=True,
                mark=EXTRAS,
            ),
        ),
    ),
    Row(
        "In scripts",
        "One object a command, statuses, quiet and verbose, completion, colours, columns.",
        (
            Step(f"hopstate evaluate runs/gcn --json 2>/dev/null | {KEYS}"),
            Step(f"hopstate rank runs/mixer --source alice --top 3 --json 2>/dev/null | {KEYS}"),
            Step(f"hopstate inspect runs/gcn --json | {KEYS}"),
            Step("hopstate rank runs/mixer --source alice --top 3"),
            Step("hopstate fit gnm --json 2>/dev/null", mark=NO_TEST, same=True),
            Step("hopstate fit gcn --data edges.csv --modle.dim 3", mark=NO_TEST, same=True),
            Step("hopstate ft", mark=NO_TEST, same=True),
            Step("hopstate evaluate nowhere", mark=NO_TEST, same=True),
            Step("hopstate datasets minesweepr", mark=NO_TEST, same=True),
            Step(
                "hopstate fit gcn --data edges.csv --model.dim -3 --out runs/refused || echo status $?; ls runs",
                mark=NO_TEST,
            ),
            Step("hopstate fit gcn --data missing.csv --out runs/refused || echo status $?; ls runs", mark=NO_TEST),
            Step(f"{FIT.replace('runs/gcn', 'runs/quiet')} -q"),
            Step("hopstate evaluate runs/gcn -v", first=30),
            Step(
                "hopstate fit gcn --resume --out runs/gcn --loop.epochs 22", keep="epoch|accuracy|folder|warning|error"
            ),
            Step("hopstate fit sage --help", first=12),
            Step(
                "source <(hopstate completion bash); COMP_WORDS=(hopstate fit na); COMP_CWORD=2; "
                "$(complete -p hopstate | sed 's/.*-F \\([^ ]*\\).*/\\1/'); echo \"${COMPREPLY[@]}\"",
                mark="",
            ),
            Step(
                "script -qec 'stty cols 80; hopstate reproduce --list recency/uci' /dev/null | grep -c '36m'; "
                "NO_COLOR=1 script -qec 'stty cols 80; hopstate reproduce --list recency/uci' /dev/null | grep -c '36m'",
                mark="no, it wants a terminal",
            ),
            Step("hopstate reproduce --list 'gmn/*' | cut -c1-110", first=12),
            Step("hopstate evaluate runs/gcn --device cuda", mark=NO_TEST),
        ),
    ),
    Row(
        "torch-geometric at the door",
        "Its loader's place, its streams, its `Sequential`.",
        (
            Step(
                """import torch
from torch_geometric.data import TemporalData
from torch_geometric.nn import GCNConv, Sequential

import hopstate
from hopstate.layers.ssm import BidirectionalMamba

data = hopstate.load_dataset("minesweeper-generated", size=30).to_pyg()
loader = hopstate.NeighborLoader(data, num_neighbors=[10, 10], input_nodes=data.train_mask[:, 0], batch_size=128)
batch = next(iter(loader))
print(type(batch).__name__, batch.batch_size, "seeds,", batch.num_nodes, "nodes")
events = TemporalData(src=torch.tensor([0, 1]), dst=torch.tensor([2, 3]), t=torch.tensor([5, 9]), msg=torch.ones(2, 3))
stream = hopstate.EventStream.from_pyg(events)
print(len(stream), "events, back:", stream.to_pyg())
model = Sequential("x, edge_index, offsets", [
    (GCNConv(data.num_features, 16), "x, edge_index -> x"),
    (BidirectionalMamba(16, state_dim=4), "x, offsets -> x"),
    (GCNConv(16, 2), "x, edge_index -> x"),
])
print(model(data.x, data.edge_index, torch.tensor([0, 450, 900])).shape)
""",
                python=True,
                mark="slow",
            ),
            Step(
                """import hopstate

data = hopstate.load_dataset("minesweeper-generated", size=30).to_pyg()
try:
    hopstate.NeighborLoader(data, [10], weight_attr="w")
except hopstate.errors.ConfigError as error:
    print(error)
""",
                python=True,
                mark=NO_TEST,
            ),
        ),
    ),
    Row(
        "Data sets, TGB, RelBench",
        "Where a licence was read, or that it is unknown; TGB's rule of negatives and a prediction table of RelBench's form.",
        (
            Step(
                "hopstate datasets uci",
                keep="^(name|kind|address|reachable|licence|read_at|sizes_at)",
                mark="",
                same=True,
            ),
            Step("hopstate datasets tgbl-wiki", keep="^(name|address|reachable|licence|sizes_at)", mark="", same=True),
            Step(
                "hopstate fit recency --data events.csv --evaluation.strategies '[ranking]' --evaluation.num_negatives 20 "
                "--out runs/many -q",
                keep="mrr|hits",
            ),
            Step(
                """import pandas as pd
from hopstate.evaluation.relbench import write_prediction_table

keys = pd.DataFrame({"date": pd.to_datetime(["2010-01-05", "2010-02-05"]), "driverId": [7, 9]})
print(open(write_prediction_table(keys, "did_not_finish", [0.25, 0.5], "rel-f1__driver-dnf.csv")).read())
""",
                python=True,
                mark="",
            ),
        ),
    ),
    Row(
        "The report and the plots",
        "A page of the runs above, an explanation with its picture, and the page on paper. In headless Chromium, at the width of a phone, light "
        "and dark, it is no wider than the screen (`tests/runs/report/test_report_in_browser.py`).",
        (
            Step(
                "hopstate compare gcn,mlp --data edges.csv --out runs/both -- --read.features features.csv "
                "--read.labels labels.csv --loop.epochs 20 --loop.progress false",
                keep="method|gcn|mlp|━|table|after",
            ),
            Step(
                "hopstate fit dyg-mamba --data events.csv --loop.epochs 2 --evaluation.strategies '[random]' --history.max_length 8 --out runs/dyg -q",
                keep="precision|baseline|better",
            ),
            Step(
                "hopstate explain runs/dyg --pair 'alice,person 2' --time 2024-03-10 --top 3 --out runs/dyg/explain-alice.csv --plot why.png",
            ),
            Step("hopstate report runs/both runs/mixer runs/recency runs/dyg --out report.html && wc -c report.html"),
            Step(
                "chromium --headless --no-sandbox --disable-gpu --print-to-pdf=report.pdf report.html 2>/dev/null; head -c 5 report.pdf",
                mark="no, it needs a browser",
            ),
        ),
    ),
    Row(
        "The site",
        "Built in the clone of the demo, and searched as a file in a browser without a network.",
        (
            Step("make docs", keep="open|WARNING -|ERROR", mark="no, it makes an environment and installs into it"),
            Step(
                """import json, pathlib

index = json.loads(pathlib.Path("site/search/search_index.json").read_text())
print(len({doc["location"].partition("#")[0] for doc in index["docs"]}), "pages,", len(index["docs"]), "places that the search knows")
print(sum("calibrated" in doc["text"] for doc in index["docs"]), "places speak of what is calibrated")
notebooks = sorted(pathlib.Path("site/notebooks").glob("*.html"))
print(len(notebooks), "notebooks with what they print,", sum(page.read_text().count("<img") for page in notebooks), "with a picture")
api = [page.read_text() for page in pathlib.Path("site/api").glob("*.html")]
print(sum(page.count("doc-signature") for page in api), "signatures of the API")
""",
                python=True,
                mark="no, it reads what is not built",
            ),
            Step(
                "chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files --virtual-time-budget=15000 --dump-dom "
                "\"file://$PWD/site/index.html?q=calibrated\" 2>/dev/null | grep -o '[0-9]* matching documents' | head -1",
                mark="no, it needs a browser",
            ),
        ),
        cloned=True,
    ),
    Row(
        "Speed",
        "What was measured (an AMD EPYC, one thread), each on its page with the command and what else the machine did:\n\n"
        "| wanted | measured | page, in `benchmarks/results` |\n|---|---|---|\n"
        "| backbones' defaults, 12,000 nodes and 520,000 edges: at most 1 s an epoch | 0.21 to 0.84 s; GraphSAGE 0.72 s (10 s in 0.1.0) | `2026-11-23-speed.md` |\n"
        "| evaluation never costs more than an epoch | 0.02 to 0.40 of one, five methods on UCI | `2026-11-24-evaluation-cost.md` |\n"
        "| a step of DyG-Mamba at L = 32: at most 0.4 of DyGFormer as DyGLib computes it | 1.00 s, 0.38 of it, written anew; DyGLib's own code was not run | `2026-11-24-products.md` |\n"
        "| the scan's share of such a step on Intel and AMD | 41 % and 35 % | the same |\n\n"
        "What is cheap is typed here, in the clone of the demo, whose environment has no pytest: the tests that gate figures are left out and the "
        "script says so. Seconds are the processor's; other programs ran on both cores.",
        (
            Step(
                "HOPSTATE_UNTESTED=1 OMP_NUM_THREADS=1 .venv/bin/python benchmarks/products.py --repeats 3",
                mark="no, it wants the demo's environment",
            ),
        ),
        cloned=True,
    ),
)
