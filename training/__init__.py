"""Training of the embedded prior; `scripts/train_prior.py` is the command line."""
