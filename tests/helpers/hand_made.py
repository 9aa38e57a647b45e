"""The bundled networks as they were trained: an implementation that owes nothing to their ONNX graphs."""

from __future__ import annotations

import onnx
import torch

from network import PreActivationResNet
from parsimon import zoo


def hand_made(name: str) -> PreActivationResNet:
    """The architecture in torch, with the weights of the file, which have the names of the module's."""
    network = PreActivationResNet(zoo.card(name)["recipe"]["widths"]).folded()
    state = network.state_dict()
    stored = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(str(zoo.path(name))).graph.initializer}
    found = {key: torch.tensor(stored[key]) for key in state if key in stored}
    left_out = set(state) - set(found)
    assert all(key.endswith("num_batches_tracked") for key in left_out), left_out
    network.load_state_dict(state | found)
    return network
