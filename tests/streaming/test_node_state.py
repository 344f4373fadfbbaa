"""Node memory: growth, replacement with and without copies, and snapshots."""

import math

import pytest
import torch

from hopstate.errors import CheckpointError, TimeOrderError
from hopstate.streaming.node_state import NodeState


def filled(n: int = 5, tag: str = "model a") -> NodeState:
    state = NodeState.zeros(n, 2, 3, tag=tag)
    return state.replaced(
        torch.tensor([0, 3]),
        torch.randn(2, 2, 3),
        torch.randn(2, 3),
        seen=torch.tensor([0, 3, 3]),
        time=torch.tensor([1.0, 2.0, 1.5], dtype=torch.float64),
    )


def same(a: NodeState, b: NodeState) -> bool:
    return a.clock == b.clock and a.tag == b.tag and all(torch.equal(t, b.tensors()[k]) for k, t in a.tensors().items())


def test_replaced_rows_change_and_the_old_state_does_not() -> None:
    old = NodeState.zeros(4, 1, 2)
    new = old.replaced(
        torch.tensor([2]),
        torch.ones(1, 1, 2),
        torch.ones(1, 2),
        seen=torch.tensor([2]),
        time=torch.tensor([7.0], dtype=torch.float64),
    )
    assert not old.memory.any()
    assert not old.output.any()
    assert old.clock == -math.inf
    assert new.memory[0, 2].tolist() == [1, 1]
    assert new.memory.sum() == 2
    assert new.clock == 7
    assert new.last_time.tolist() == [-math.inf, -math.inf, 7, -math.inf]


def test_in_place_equals_a_copy_and_shares_tensors() -> None:
    state = filled()
    rows = (torch.tensor([1, 4]), torch.randn(2, 2, 3), torch.randn(2, 3))
    times = {"seen": torch.tensor([1, 4]), "time": torch.tensor([3.0, 4.0], dtype=torch.float64)}
    kept = state.snapshot()
    copied = state.replaced(*rows, **times)
    assert same(state, kept)
    written = state.replaced(*rows, **times, in_place=True)
    assert same(copied, written)
    assert written.memory is state.memory
    assert not same(kept, written)  # the snapshot did not change


def test_growth_keeps_rows_and_adds_nodes_without_history() -> None:
    state = filled(5)
    grown = state.grown(8)
    assert grown.num_nodes == 8
    assert torch.equal(grown.memory[:, :5], state.memory)
    assert not grown.memory[:, 5:].any()
    assert grown.last_time[5:].tolist() == [-math.inf] * 3
    assert state.grown(3) is state


def test_parts_that_disagree_are_named() -> None:
    tensors = filled().tensors()
    with pytest.raises(CheckpointError):
        NodeState.from_tensors({**tensors, "output": torch.zeros(4, 3)}, 0.0, "")
    del tensors["last_time"]
    with pytest.raises(CheckpointError, match="last_time"):
        NodeState.from_tensors(tensors, 0.0, "")


def test_an_event_before_the_last_of_its_node_is_named() -> None:
    state = filled()
    state.check_times(torch.tensor([3, 1]), torch.tensor([2.0, 0.0], dtype=torch.float64))
    with pytest.raises(TimeOrderError, match="node 3"):
        state.check_times(torch.tensor([0, 3]), torch.tensor([1.0, 1.9], dtype=torch.float64))


def test_detached_state_carries_no_gradient() -> None:
    rows = torch.randn(1, 1, 3, requires_grad=True)
    state = NodeState.zeros(2, 1, 3).replaced(
        torch.tensor([0]), rows, rows[0], seen=torch.tensor([0]), time=torch.zeros(1, dtype=torch.float64)
    )
    assert state.memory.requires_grad
    assert not state.detached().memory.requires_grad
    assert not state.detached().output.requires_grad


def test_updates_through_a_part_equal_updates_of_the_whole_with_their_gradients() -> None:
    whole = filled(6)
    kept = whole.snapshot()
    nodes = torch.tensor([5, 1, 3, 5])
    rows, output = torch.randn(2, 2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    change = {"seen": torch.tensor([5, 3]), "time": torch.tensor([4.0, 4.0], dtype=torch.float64)}
    found, states = [], []
    for state in (whole, whole.subset(nodes)):
        new = state.replaced(torch.tensor([5, 3]), rows, output, **change)
        read = torch.tensor([3, 1, 5])
        loss = (new.memory[:, new.place(read)] ** 2).sum() + new.output[new.place(read)].prod()
        found.append(torch.autograd.grad(loss, (rows, output)))
        states.append(new)
    assert states[1].rows.tolist() == [1, 3, 5]
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    assert same(whole, kept)  # a part is a copy
    assert same(whole.put(states[1]), states[0].detached())
    assert not whole.memory.requires_grad


def test_a_part_keeps_its_nodes_in_copies_and_has_no_others() -> None:
    part = filled().subset(torch.tensor([3, 1]))
    for copy in (part.snapshot(), part.to("cpu"), part.detached()):
        assert copy.place(torch.tensor([3, 1])).tolist() == [1, 0]
    for node in (0, 2, 4):
        with pytest.raises(AssertionError):
            part.place(torch.tensor([node]))


def test_a_part_rejects_late_events_by_their_numbers() -> None:
    with pytest.raises(TimeOrderError, match="node 3"):
        filled().subset(torch.tensor([3, 4])).check_times(torch.tensor([4, 3]), torch.tensor([0.0, 1.0]))
