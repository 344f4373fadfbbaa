"""Training with a mixture of negatives: link methods, exact resume, softmax in closed form."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cut_runs import SMALL, resumes_to_the_same_bits
from hopstate.data.events import EventStream
from hopstate.methods import get_method
from hopstate.methods.config import config_from, parse_words, parser_of
from hopstate.methods.method import Context
from hopstate.runs.reproduce import all_recipes
from hopstate.training.tasks.events import EpochNegatives, link_loss, training_negatives, with_negatives
from hopstate.training.trainer import seed_everything

LOOP = {"loop.epochs": 2, "loop.progress": False, "loop.logger": "none", "loop.device": "cpu", "loop.patience": None}
MIXED = {"negatives.mixture.historical": 0.3, "negatives.mixture.popular": 0.2}
SOFTMAX = {**MIXED, "negatives.loss": "softmax", "negatives.candidates": 4}


def events(count: int = 300) -> EventStream:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 10, count), 10 + rng.integers(0, 10, count)
    return EventStream(src=src, dst=dst, t=np.sort(rng.integers(0, 200, count)), num_nodes=20)


def task_of(method: str, folder: Path, **settings: Any) -> Any:
    chosen = get_method(method)
    given = {"data": "x", "batch_size": 40, "evaluation.batch_size": 40, "evaluation.strategies": ["random"]}
    config = config_from(chosen, given | LOOP | SMALL[method] | settings)
    seed_everything(0)
    return chosen.build(events(), config, Context(run=folder, cache=folder)), config


def pairs_of(batch: Any) -> tuple[list[float], int]:
    """Return the labels of a batch in order, and its number of rows."""
    steps = batch["steps"] if isinstance(batch, dict) else [{"labels": part[1]} for part in batch]
    labels = torch.cat([step["labels"] for step in steps])
    return labels.tolist(), len(labels)


def test_softmax_over_candidates_equals_the_closed_form() -> None:
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(6, 4)
    labels[:, 0] = 1
    loss = link_loss(logits.flatten(), labels.flatten(), 4)
    p = logits.detach().exp() / logits.detach().exp().sum(1, keepdim=True)
    torch.testing.assert_close(loss, -p[:, 0].log().sum())
    (found,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(found, p - labels.double())
    one = link_loss(logits[:, :2].flatten(), labels[:, :2].flatten(), 2)  # two: the logistic function of the difference
    torch.testing.assert_close(one, -torch.nn.functional.logsigmoid(logits[:, 0] - logits[:, 1]).sum())


def test_order_of_groups_and_of_binary_pairs() -> None:
    events = np.array([1, 2]), np.array([3, 4]), np.array([5.0, 6.0]), np.array([8, 9])
    others = np.array([[1, 1], [2, 2]]), np.array([[7, 8], [9, 10]])
    (u, v, when, relation), labels = with_negatives(events, *others, 3)
    assert (u.tolist(), v.tolist()) == ([1, 1, 1, 2, 2, 2], [3, 7, 8, 4, 9, 10])
    assert (when.tolist(), labels.tolist()) == ([5, 5, 5, 6, 6, 6], [1, 0, 0, 1, 0, 0])
    assert relation.tolist() == [8, 8, 8, 9, 9, 9]
    (u, v, when), labels = with_negatives(events[:3], others[0][:, :1], others[1][:, :1], 1)
    assert (v.tolist(), labels.tolist()) == ([3, 4, 7, 9], [1, 1, 0, 0])


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("graphmixer", MIXED),
        ("ctdg-ssm", SOFTMAX),
        pytest.param("dyg-mamba", SOFTMAX, marks=pytest.mark.slow),
        pytest.param("dygformer", MIXED, marks=pytest.mark.slow),
    ],
)
def test_link_methods_resume_to_the_same_weights(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    task, _ = task_of(method, tmp_path, **settings)
    width = 5 if settings is SOFTMAX else 2
    total = 0
    for batch in task.batches(0):
        labels, rows = pairs_of(batch)
        total += rows
        assert sum(labels) == rows / width
    assert total == width * len(task.split.train)
    resumes_to_the_same_bits(lambda: task_of(method, tmp_path, **settings), method, tmp_path)


@pytest.mark.parametrize("method", ["dyg-mamba", "graphmixer"])
def test_parts_contain_complete_groups_and_add_up(method: str, tmp_path: Path) -> None:
    task, _ = task_of(method, tmp_path, **SOFTMAX)
    task.model.eval()
    (whole,) = next(iter(task.batches(0)))
    loss = task.loss(whole)
    task.source.microbatch_size, task.source.microbatch_tokens = 23, None if method == "graphmixer" else 60
    parts = next(iter(task.batches(0)))
    assert len(parts) > 2
    assert all(len(part[1]) % 5 == 0 and part[1][0] == 1 for part in parts)
    torch.testing.assert_close(sum(task.loss(part) for part in parts), loss)


def test_the_default_is_one_random_negative(tmp_path: Path) -> None:
    task, config = task_of("graphmixer", tmp_path)
    rows = task.split.train
    src, dst = task.source.drawn.of(3)
    assert np.array_equal(dst[:, 0], training_negatives(task.stream, rows, 40, config.loop.seed, 3))
    assert np.array_equal(src[:, 0], task.stream.src[rows])


@pytest.mark.parametrize("settings", [{}, SOFTMAX, MIXED])
def test_an_event_is_never_its_own_negative(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    stream = EventStream(src=rng.integers(0, 30, 800), dst=30 + rng.integers(0, 4, 800), t=np.arange(800))
    config = config_from(get_method("graphmixer"), {"data": "x", **settings})
    src, dst = EpochNegatives(stream, np.arange(800), 40, 0, config.negatives).of(0)
    assert not ((src == stream.src[:, None]) & (dst == stream.dst[:, None])).any()


def test_recipes_of_papers_use_one_random_negative() -> None:
    for recipe in all_recipes().values():
        assert not any(name.startswith("negatives") for name in recipe.settings), recipe.name
    for method in SMALL:
        negatives = config_from(get_method(method), {"data": "x"}).negatives
        assert (negatives.mixture.shares().tolist(), negatives.loss) == ([1, 0, 0, 0], "binary")


def test_the_command_line_accepts_the_shares_as_one_value() -> None:
    parser = parser_of(get_method("ctdg-ssm"))
    words = ["--data=x", "--negatives.mixture", "{random: 0.9, historical: 0.1}"]
    config = parse_words(get_method("ctdg-ssm"), parser, words)[1]({})
    assert config.negatives.mixture.shares().tolist() == pytest.approx([0.9, 0.1, 0, 0])
