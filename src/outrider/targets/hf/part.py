"""A model of some of a model's layers. Every module and weight is shared; only the frame around the layers is new.

Layers keep their own numbers, so each finds its own keys and values in the cache.
"""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from outrider.errors import TargetError


def with_layers(model: Any, blocks: nn.ModuleList, layers: Sequence[int]) -> Any:
    """The model that runs only `layers` (increasing) of `blocks`, which are all of its decoder layers.

    Raises TargetError for layers that it does not have.
    """
    if not layers or list(layers) != sorted({*layers}) or not 0 <= layers[0] <= layers[-1] < len(blocks):
        raise TargetError(f"a part has increasing layers of 0 to {len(blocks) - 1}, not {list(layers)}")
    place = next(name for name, module in model.named_modules() if module is blocks)
    frame = {id(blocks), *(id(module) for name, module in model.named_modules() if _holds(name, place))}
    shared = {id(module): module for module in model.modules() if id(module) not in frame}
    shared |= {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared)
    parent, _, name = place.rpartition(".")
    setattr(twin.get_submodule(parent), name, nn.ModuleList(blocks[layer] for layer in layers))
    _shorten(twin.config, layers, len(blocks))
    return twin


def _holds(name: str, place: str) -> bool:
    """Whether the module called `name` is the one at `place`, or one around it."""
    return name in ("", place) or place.startswith(f"{name}.")


def _shorten(config: Any, layers: Sequence[int], num_layers: int) -> None:
    """What the configuration lists for every layer (kinds of attention, for one) it now lists for these."""
    for name, value in list(vars(config).items()):
        if isinstance(value, list | tuple) and len(value) == num_layers:
            setattr(config, name, [value[layer] for layer in layers])
    config.num_hidden_layers = len(layers)
