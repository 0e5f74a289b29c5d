import errno

import pytest

import files
from errors import UserError
from files import check_writable, remove_unfinished, whole_file, whole_files


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


def test_what_the_system_refuses_is_one_line_that_names_the_file(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*a\.txt: No space left on device"):
        with whole_file(tmp_path / "a.txt"):
            raise OSError(errno.ENOSPC, "No space left on device")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*folder\.txt"), whole_file(tmp_path / "folder.txt"):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["folder.txt"]


def test_a_set_of_files_appears_at_the_end_together(tmp_path):
    folder = tmp_path / "a" / "b"
    with whole_files(folder) as temporary:
        for name in ("2.txt", "1.txt"):
            with whole_file(temporary / name) as path:
                path.write_text(name)
        assert [p for p in folder.iterdir() if p.is_file()] == []
    assert sorted(p.name for p in folder.iterdir()) == ["1.txt", "2.txt"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_set_that_fails_leaves_what_was_there_and_no_new_folders(tmp_path, failure):
    folder = tmp_path / "a" / "b"
    with pytest.raises(failure), whole_files(folder) as temporary:
        (temporary / "1.txt").write_text("new")
        raise failure
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)
    (folder / "1.txt").write_text("old")
    (folder / "2.txt").mkdir()
    with pytest.raises(UserError, match=r"2\.txt: there is a folder"), whole_files(folder) as temporary:
        (temporary / "1.txt").write_text("new")
        (temporary / "2.txt").write_text("new")
    assert sorted(p.name for p in folder.iterdir()) == ["1.txt", "2.txt"]
    assert (folder / "1.txt").read_text() == "old"


def test_whether_a_file_can_be_written_is_told_without_a_trace(tmp_path):
    check_writable(tmp_path / "a" / "b", ["c.txt", "d.txt"])
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for folder, name in (("file/a", "c.txt"), ("a", "x" * 300), ("x" * 300, "c.txt"), ("", "folder")):
        with pytest.raises(UserError, match="cannot write"):
            check_writable(tmp_path / folder, ["first.txt", name])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_process_that_ends_takes_all_that_is_unfinished_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_ending", False)  # and so again after the test
    (tmp_path / "old.txt").write_text("old")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError), whole_files(tmp_path / "a" / "b") as folder, whole_file(folder / "1.txt") as first:
        first.write_text("half")
        with pytest.raises(UserError), whole_file(tmp_path / "old.txt") as second:
            second.write_text("new")
            assert remove_unfinished()
            assert sorted(tmp_path.rglob("*")) == before
            with pytest.raises(UserError, match="2.txt: the program is ending"), whole_file(folder / "2.txt"):
                pass
    assert sorted(tmp_path.rglob("*")) == before and (tmp_path / "old.txt").read_text() == "old"
    assert not files._unfinished and not files._made


def test_a_set_that_is_moving_to_its_place_is_let_go_on(tmp_path, monkeypatch):
    found = []
    move = files.Path.replace

    def replace(file, place):
        found.append(remove_unfinished())
        return move(file, place)

    with whole_files(tmp_path / "a") as folder:
        (folder / "1.txt").write_text("1")
        (folder / "2.txt").write_text("2")
        monkeypatch.setattr(files.Path, "replace", replace)
    assert found == [False, False]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["1.txt", "2.txt"]
