"""Priors are made here, and the last one is kept: the next object of a process need not load it again."""

import logging
import threading

import torch

from config import PriorConfig
from devices import enough_memory
from priors import PRIORS, Prior
from priors.ldm import LatentPrior
from registry import lookup

logger = logging.getLogger(__name__)

_last: dict[tuple, Prior] = {}  # one entry
_making = threading.Lock()  # who asks for a prior that another thread is making waits for it


def make_prior(config: PriorConfig, device: torch.device) -> Prior:
    """The prior that the configuration names: the last one made, where that is the same."""
    build = lookup(PRIORS, config.name, "prior.name")
    key = build, repr(config), device.type  # a tensor's device has a number, that of --device has none
    with _making:
        if key not in _last:
            _last.clear()  # before another one takes its memory
            with enough_memory(f"prior.name={config.name}", device, "try --device cpu"):
                prior = build(config, device)
                if isinstance(prior, LatentPrior) and device.type == "cpu":
                    logger.warning("prior.name=%s on a CPU takes hours: it is meant for a GPU", config.name)
                if isinstance(prior, LatentPrior) and device.type == "cuda":
                    prior.load()
                _last[key] = prior
        return _last[key]
