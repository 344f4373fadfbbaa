"""Fabric's way of starting ranks, without its wrapper of the model: `ranks.summed_gradients` brings gradients together.

Its wrapper averages over ranks, which is the batch's mean only where all have as many rows, and it waits for models to
be called as a whole; sequences are streamed through parts of theirs.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from lightning_fabric.strategies import DDPStrategy
from torch import nn

from hopstate.errors import ConfigError
from hopstate.training.ranks import PATIENCE


class Together(DDPStrategy):
    """Ranks that hold the same weights and sum their gradients themselves."""

    def setup_module(self, module: nn.Module) -> nn.Module:
        return module


def places(accelerator: str, number: str) -> dict[str, Any]:
    """Return what Fabric needs to know of this machine's ranks: gloo between processors, nccl between GPUs.

    Args:
        accelerator: "auto", "cpu", "gpu" or "mps".
        number: of the device that was asked for, or nothing.

    Raises:
        ConfigError: one device was asked for by its number, or there are fewer GPUs than ranks.
    """
    here, size = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    if number or accelerator == "mps":
        raise ConfigError(
            f"{here} ranks take a device each; --device is auto, cpu or cuda under torchrun, which numbers them"
        )
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if accelerator == "gpu" and seen < here:
        raise ConfigError(
            f"{here} ranks on this machine, but torch sees {seen} GPU(s); give torchrun --nproc-per-node {seen}, or "
            "--device cpu"
        )
    on_gpu = accelerator == "gpu" or (accelerator == "auto" and seen >= here)
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"  # what is read on the CPU is gathered there
    return {
        "accelerator": "gpu" if on_gpu else "cpu",
        "devices": here,
        "num_nodes": size // here,
        "strategy": Together(process_group_backend=backend, timeout=PATIENCE),
    }
