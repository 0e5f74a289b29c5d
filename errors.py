"""Errors that a person can act on: `main.py` prints their one line and exits with code 2."""


class UserError(ValueError):
    """Something from outside is wrong: a file, an argument, a key. One line: what, expected, found."""


class BackendUnavailable(UserError):
    """A backend was asked for by name and cannot run here; the message says what is missing."""
