"""The project's yardstick: held-out objects through the whole pipeline, measured against the truth and baselines."""
