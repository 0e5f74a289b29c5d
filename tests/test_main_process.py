"""The program as a process: what signals end leaves nothing behind, and streams may be closed."""

import os
import subprocess
import sys

import pytest
from command_line import ROOT, TINY, TINY_FIT, contents, environment, files_of, write_splats


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("name, code, word", [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated"),
                                              ("SIGHUP", 129, "terminated")])  # fmt: skip
def test_a_signal_leaves_nothing_even_while_other_threads_write(tmp_path, name, code, word):
    """The signal comes from a thread that goes on writing for as long as it can."""
    program = f"""
import os, signal, sys, time
sys.path.insert(0, {str(ROOT)!r})
import main
signal.signal(signal.{name}, signal.SIG_DFL)  # whatever these tests were started by
main.prepare_process()
import pipeline
write = pipeline.write_gaussians
def write_again_and_again(*arguments):
    for _ in range(1000):
        write(*arguments)
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.001)
pipeline.write_gaussians = write_again_and_again
sys.exit(main.main(sys.argv[1:]))
"""
    write_splats(tmp_path / "good.ply")
    before = contents(tmp_path)
    command = [sys.executable, "-c", program, "load=good.ply", "outdir=out", "--quiet", "--device", "cpu", *TINY]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", word + "\n")
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_signal_that_is_ignored_stays_ignored():
    """By nohup, or by a shell for its jobs in the background."""
    program = (
        "import signal, main; signal.signal(signal.SIGHUP, signal.SIG_IGN); main.prepare_process(); "
        "print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "True False\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_a_run_without_streams_is_a_run(tmp_path):
    """Its progress bar, too, writes somewhere; and no name of a file is one that it cannot write."""
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, str(ROOT / "main.py"), "--device", "cpu"]
    options = dict(cwd=tmp_path, env=environment(), timeout=300, check=False)
    assert subprocess.run([*command, *TINY, *TINY_FIT, "outdir=out"], **options).returncode == 0
    assert sorted(contents(tmp_path / "out" / "sample")) == files_of("sample")
    assert subprocess.run([*command, b"input=\xff.png"], **options).returncode == 2
