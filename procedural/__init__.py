"""Random 3D objects and their pictures: training data of the embedded prior, ground truth of tests and evaluation.

objects = sample_objects(seeds, "v1")
azimuths_deg, elevations_deg = sample_view_angles(seeds)
pictures = render_views(objects, azimuths_deg, elevations_deg, size=128, device="cpu")
"""

from procedural.families import (
    FAMILY_NAMES,
    HELD_OUT_FROM,
    TRAINING_BELOW,
    VERSIONS,
    Objects,
    held_out_seeds,
    held_out_source_angles,
    sample_objects,
    sample_view_angles,
)
from procedural.render import render_views

__all__ = [
    "FAMILY_NAMES",
    "HELD_OUT_FROM",
    "TRAINING_BELOW",
    "VERSIONS",
    "Objects",
    "held_out_seeds",
    "held_out_source_angles",
    "render_views",
    "sample_objects",
    "sample_view_angles",
]
