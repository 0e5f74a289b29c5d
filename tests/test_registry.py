import pytest

from errors import UserError
from registry import lookup, register


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(UserError, match="mesh.method='poisson' is unknown; choose from marching_cubes, tsdf"):
        lookup({"marching_cubes": 1, "tsdf": 2}, "poisson", "mesh.method")


def test_a_name_is_taken_once():
    table = {}
    register(table, "a")(int)
    assert lookup(table, "a", "key") is int
    with pytest.raises(ValueError, match="'a' is registered already"):
        register(table, "a")(str)
