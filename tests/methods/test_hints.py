"""What a complaint about an option that is none suggests."""

from hopstate.methods.hints import hint


def test_a_task_is_another_method():
    said = hint("Unrecognized arguments: --task node", ["read.task", "loop.epochs"])
    assert "a method has one task" in said
    assert "read.task" not in said
    assert "loop.epochs" in hint("Unrecognized arguments: --loop.epoch 3", ["read.task", "loop.epochs"])
