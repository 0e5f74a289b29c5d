import pytest

from errors import UserError
from files import whole_file


def test_the_file_appears_at_the_end_and_whole(tmp_path):
    path = tmp_path / "new" / "é #1.v2.txt"
    with whole_file(path) as temporary:
        temporary.write_text("half")
        assert not path.exists() and temporary.suffix == ".txt"
    assert path.read_text() == "half"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_failure_keeps_the_old_file_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        temporary.write_text("new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write .*file/a.txt"), whole_file(tmp_path / "file" / "a.txt"):
        pass


def test_files_are_as_readable_as_any_other(tmp_path):
    with whole_file(tmp_path / "a.txt"):
        pass
    (tmp_path / "b.txt").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode
