"""Every recipe is a configuration that its method accepts, on data of the catalogue, with a source."""

from __future__ import annotations

import dataclasses

import pytest

from hopstate.datasets.registry import find_dataset
from hopstate.errors import ConfigError
from hopstate.methods import get_method
from hopstate.runs.reproduce import Recipe, Trial, all_recipes, find_recipes
from hopstate.training.run_folder import flatten

RECIPES = list(all_recipes().values())
STATIC = {"accuracy", "balanced_accuracy", "roc_auc", "average_precision", "macro_f1", "mae"}
LINKS = {
    f"{new}{s}{m}"
    for new in ("", "new_")
    for s in ("", "historical_", "inductive_")
    for m in ("average_precision", "roc_auc")
}
LABELS = {"average_precision", "roc_auc"}  # metrics of node tasks on streams


def metrics_of(recipe: Recipe) -> set[str]:
    """Return the possible columns of a run of the recipe's method."""
    if recipe.method.endswith("-nodes"):
        return LABELS
    return {*LINKS, "mrr"} if get_method(recipe.method).data == "events" else STATIC


def test_every_recipe_has_known_data_and_method() -> None:
    for recipe in RECIPES:
        entry = find_dataset(recipe.data)
        assert entry is not None, recipe.name
        kind = {"graph": ("node",), "graphs": ("graph",), "events": ("link",), "sequences": ("sequence",)}
        assert entry.kind in kind[get_method(recipe.method).data], recipe.name


def test_published_results_are_plausible_and_have_a_source() -> None:
    for recipe in RECIPES:
        for result in recipe.published:
            assert 0 < result.mean <= 1, (recipe.name, result)
            assert result.std is None or 0 <= result.std < 0.2, (recipe.name, result)
            assert result.metric in metrics_of(recipe), result
            assert result.source
        assert recipe.metric in metrics_of(recipe), recipe.name
        assert len({p.metric for p in recipe.published}) == len(recipe.published), recipe.name


def accepted(recipe: Recipe) -> None:
    """Check that a run of a recipe has all its settings and its own seed."""
    flat = flatten(dataclasses.asdict(Trial(recipe=recipe).config(3)))
    assert [flat[name] for name in recipe.vary] == [3] * len(recipe.vary), recipe.name
    for name, value in recipe.settings.items():
        found = list(flat[name]) if isinstance(flat[name], tuple) else flat[name]
        assert found == value, (recipe.name, name)


def test_methods_accept_the_settings_of_a_recipe_and_seeds_differ() -> None:
    for recipe in {recipe.method: recipe for recipe in RECIPES}.values():
        accepted(recipe)


@pytest.mark.slow
def test_methods_accept_the_settings_of_every_recipe() -> None:
    for recipe in RECIPES:
        accepted(recipe)


@pytest.mark.parametrize(
    ("name", "metric", "mean", "std"),
    [
        ("gmn/minesweeper", "roc_auc", 0.9101, 0.0023),
        ("edgebank/uci", "average_precision", 0.7620, None),
        ("dyg-mamba/uci", "average_precision", 0.9679, 0.0008),
        ("ctdg-ssm/uci", "roc_auc", 0.8924, 0.0043),
        ("gcnii/ogbn-products-top", "accuracy", 0.8196, 0.0024),
    ],
)
def test_rows_contain_the_published_result(name: str, metric: str, mean: float, std: float | None) -> None:
    reference = all_recipes()[name].reference
    assert reference is not None
    assert (reference.metric, reference.mean, reference.std) == (metric, mean, std)


def test_a_recipe_has_the_settings_of_its_paper() -> None:
    assert all_recipes()["dyg-mamba/enron"].settings["history.max_length"] == 512
    assert all_recipes()["dygformer/lastfm"].settings["model.patch_size"] == 16
    assert all_recipes()["ctdg-ssm/enron"].settings["model.static"] == "onehot"
    assert all_recipes()["edgebank/enron"].settings["model.memory"] == "window"


@pytest.mark.parametrize(
    ("row", "settings", "results"),
    [
        ("", {}, (96.79, 74.11, 68.55)),
        ("-no-cooccurrence", {"model.cooccurrence": False}, (93.09, 73.53, 66.32)),
        ("-no-skip", {"model.block.gate": False}, (95.37, 73.64, 67.64)),
    ],
)
def test_every_row_of_dyg_mambas_table_13_is_a_recipe(row: str, settings: dict, results: tuple) -> None:
    for data, result in zip(("uci", "us-legis", "un-trade"), results, strict=True):
        recipe = all_recipes()[f"dyg-mamba/{data}{row}"]
        assert recipe.settings.items() >= settings.items()
        assert next(p.mean for p in recipe.published if p.metric == "average_precision") == pytest.approx(result / 100)


def test_rows_of_gmn_use_depths_of_its_table_6() -> None:
    model = Trial(recipe=find_recipes("gmn/*-minus")[0]).config(0).model
    assert (model.encoder, model.uses_mpnn) == ("rwf", False)
    depths = dict.fromkeys(("model.token_layers", "model.node_layers", "model.mpnn_layers"), 6)
    changes = {"walks.walks": 32, "walks.repeats": 16, "walks.max_length": 0, **depths}
    assert Trial(recipe=all_recipes()["gmn/coco-sp"], changes=changes).config(0).model.node_layers == 6


@pytest.mark.parametrize("method", ["dyg-mamba", "ctdg-ssm", "dygformer", "graphmixer"])
def test_recipes_of_event_streams_measure_time_deltas_in_seconds(method: str) -> None:
    found = [r for r in find_recipes(f"{method}/*") if not (r.name.endswith("-chosen") and method == "ctdg-ssm")]
    assert [r.name for r in found if r.settings.get("time_scale") != "seconds"] == []


@pytest.mark.parametrize("method", ["dyg-mamba", "ctdg-ssm"])
def test_a_frozen_backbone_is_trained_as_the_classifier_uses_it(method: str) -> None:
    for recipe in find_recipes(f"{method}/*-nodes-frozen"):
        links, head = all_recipes()[recipe.first], Trial(recipe=recipe).config(0)
        assert links.data == recipe.data
        assert flatten(dataclasses.asdict(Trial(recipe=links).config(0))).items() >= recipe.settings.items()
        assert not getattr(Trial(recipe=links).config(0).model, "cooccurrence", False)
        assert head.freeze


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("dyg-mamba/*-blocks-*", 6),  # figure 9
        ("dyg-mamba/*-state-*", 6),
        ("dyg-mamba/*-expand-*", 6),
        ("dyg-mamba/can-parl-convergence*", 2),  # Table 7
        ("ctdg-ssm-sequences/order-*-node", 15),  # E.4
        ("ctdg-ssm/mooc-max-delta-*", 4),  # E.5
    ],
)
def test_ablations_of_the_papers_are_recipes(pattern: str, count: int) -> None:
    found = find_recipes(pattern)
    assert len(found) == count
    for recipe in found:
        accepted(recipe)


def test_patterns_match_recipes_and_a_wrong_name_suggests_the_nearest() -> None:
    assert {r.name for r in find_recipes("ctdg-ssm-sequences/length-*")} >= {"ctdg-ssm-sequences/length-9"}
    with pytest.raises(ConfigError, match="gmn/minesweeper"):
        find_recipes("gmn/minesweper")


def test_rows_of_top_have_the_papers_parts_or_no_published_result() -> None:
    products = {kind: all_recipes()[f"gcnii/ogbn-products-{kind}"] for kind in ("top", "cluster", "gas")}
    for kind, recipe in products.items():
        config = Trial(recipe=recipe).config(0)
        assert (config.model.jumping_knowledge, config.batching.nodes, config.batching.batch_size) == (
            "mean",
            "random",
            97_961,
        )
        assert config.batching.train_only == (kind == "top")
        assert recipe.reference is not None
    others = ("*/ogbn-papers100m*", "gcn/ogbn-products*", "sage/ogbn-products*")
    for recipe in (recipe for pattern in others for recipe in find_recipes(pattern)):
        assert not recipe.published, recipe.name
        assert recipe.note, recipe.name
