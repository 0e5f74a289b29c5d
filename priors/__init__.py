"""The priors by name; a prior is made by `PRIORS[name](config, device)`."""

from priors.base import Prior
from priors.embedded import EmbeddedPrior
from priors.mvdream import ImageDreamPrior, MVDreamPrior
from priors.zero123 import Zero123Prior

PRIORS: dict[str, type[Prior]] = {
    "embedded": EmbeddedPrior,
    "zero123": Zero123Prior,
    "imagedream": ImageDreamPrior,
    "mvdream": MVDreamPrior,
}

__all__ = ["PRIORS", "Prior"]
