from pathlib import Path

import pytest

from config import Config, describe_keys, load_config
from errors import UserError

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_config_loads(path):
    given = ["load=a.ply"] if path.name == "mesh.yaml" else []
    assert isinstance(load_config(path, given), Config)


def test_what_a_file_leaves_to_the_command_line_must_be_given(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("load: ???\nmesh: {resolution: 64}\n")
    with pytest.raises(UserError, match=r"c\.yaml needs load=: give it on the command line"):
        load_config(path, ["mesh.resolution=32"])
    assert load_config(path, ["load=a.ply"]).load == "a.ply"


def test_an_override_wins_over_the_file_and_the_file_over_the_default(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("seed: 5\nmesh: {resolution: 64}\n")
    config = load_config(path, ["mesh.resolution=32"])
    assert (config.seed, config.mesh.resolution, config.texture.size) == (5, 32, Config().texture.size)


@pytest.mark.parametrize("value", ["a=b.png", "#1.png", "[x.png", "007", "null", "${y}", "a: b", "é テスト.png", ""])
def test_text_is_taken_as_it_stands(value):
    assert load_config(None, [f"input={value}"]).input == value


@pytest.mark.parametrize(
    "override, complaint",
    [
        ("mesh.resolutoin=64", "mesh.resolutoin: Key 'resolutoin' not in"),
        ("nonsense=1", "nonsense"),
        ("mesh.resolution=abc", "mesh.resolution: Value 'abc'"),
        ("mesh.resolution=64.5", "mesh.resolution: Value '64.5'"),
        ("mesh.faces=3", "mesh.faces=3 is out of range: expected 0 or at least 4"),
        ("mesh.resolution=1", "mesh.resolution=1 is out of range: expected a number from 2"),
        ("elevation=nan", "elevation=nan is out of range"),
        ("mesh.pixel=-0.1", "mesh.pixel=-0.1 is out of range"),
        ("prior.features_every=0", "prior.features_every=0 is out of range"),
        ("seed=-1", "seed=-1 is out of range"),
        ("seed=[1", "cannot be read"),
        ("seed", "expected key=value"),
        ("=3", "expected key=value"),
        ("mesh=3", "a section takes keys"),
        ("output.turntable=avi", "expected gif or mp4 or none"),
    ],
)
def test_a_wrong_override_is_one_line_that_names_the_key(override, complaint):
    with pytest.raises(UserError) as caught:
        load_config(None, [override])
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "overrides, complaint",
    [
        (["input=cat.png", "load=cat.ply"], "input=cat.png and load=cat.ply: expected one of them"),
        (["load=cat.ply", "refine=true"], "refine=true with load=cat.ply: the prior needs the picture or the text"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(overrides, complaint):
    with pytest.raises(UserError, match=complaint):
        load_config(None, overrides)


@pytest.mark.parametrize("text", ["a: [", "mesh: {resolution: [1]}", "sede: 1", "- 1\n- 2", "just words"])
def test_a_wrong_file_is_one_line(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere.yaml: no such file"):
        load_config(tmp_path / "nowhere.yaml")


def test_help_explains_every_key():
    lines = describe_keys().splitlines()
    assert any(line.strip().startswith("mesh.resolution=128 ") for line in lines)
    assert all(len(line.split(None, 1)[1]) > 5 for line in lines)
