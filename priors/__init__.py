"""The priors by name; a prior is made by `PRIORS[name](config, device)`."""

from priors.base import Prior
from priors.embedded import EmbeddedPrior

PRIORS: dict[str, type[Prior]] = {"embedded": EmbeddedPrior}

__all__ = ["PRIORS", "Prior"]
