"""The backends of the density field against each other: time, error, meshes, and what that does to a whole run."""
