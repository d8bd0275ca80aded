"""Everything that is written goes through one writer, which never harms what is at its path."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

import minigrad as mg
from layers import Linear
from minigrad import files
from minigrad.errors import ArgumentError, FileError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs links, modes and pipes")


@pytest.fixture(scope="module")
def trace():
    x = mg.tensor([1.0, 2.0], requires_grad=True, name="x")
    with mg.trace() as made:
        mg.sum(x * x).backward()
    return made


def save(path, trace):
    mg.save(path, model=Linear(3, 2, rng=0), step=3)


def watched(path, trace):
    w = mg.tensor([1.0], requires_grad=True, name="w")
    with mg.watch([w], path=path):
        pass


WRITERS = {
    "save": (save, "run.npz"),
    "picture": (lambda path, trace: trace.draw(path), "graph.dot"),
    "page": (lambda path, trace: trace.html(path), "page.html"),
    "derivation": (lambda path, trace: trace.derivation(path), "derivation.md"),
    "flow": (watched, "flow.jsonl"),
    "bytes": (lambda path, trace: files.write(path, b"new"), "any.bin"),
}


@pytest.fixture(params=WRITERS)
def writer(request, trace):
    """A function that writes to a path, and the name of a file that it may write."""
    write, name = WRITERS[request.param]
    return lambda path: write(path, trace), name


def test_a_symbolic_link_is_followed_and_stays_a_link(writer, tmp_path):
    write, name = writer
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / name, tmp_path / name
    for content in (b"old\n", None):  # None: the link points to a file that is yet to be made
        target.unlink() if content is None else target.write_bytes(content)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        write(link)
        assert link.is_symlink()
        assert len(target.read_bytes()) > 4 or target.read_bytes() == b"new"
        assert not list(tmp_path.glob(".*"))


def test_a_file_keeps_its_mode(writer, tmp_path):
    write, name = writer
    (tmp_path / name).write_bytes(b"")
    (tmp_path / name).chmod(0o640)
    write(tmp_path / name)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640
    assert (tmp_path / name).stat().st_size > 0


def test_a_pipe_that_nobody_reads_and_a_socket_are_refused_and_stay(writer, tmp_path):
    write, name = writer
    os.mkfifo(tmp_path / name)
    with pytest.raises(ArgumentError, match="name a file"):
        write(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / name).stat().st_mode)
    (tmp_path / name).unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        before = os.getcwd()
        os.chdir(tmp_path)  # a socket's name must be short
        try:
            bound.bind(name)
        finally:
            os.chdir(before)
        with pytest.raises(ArgumentError, match="name a file"):
            write(tmp_path / name)
        assert stat.S_ISSOCK((tmp_path / name).stat().st_mode)


def test_a_folder_is_refused_and_stays_where_it_is(writer, tmp_path):
    write, name = writer
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine").write_text("kept")
    with pytest.raises(ArgumentError, match="is a folder; name a file in it"):
        write(tmp_path / name)
    assert sorted(p.name for p in tmp_path.rglob("*")) == sorted([name, "mine"])


@pytest.mark.parametrize("bad", ["a\0b", "x" * 300])
def test_a_name_that_no_file_can_have_is_an_error_of_ours(writer, tmp_path, bad):
    write, name = writer
    with pytest.raises(ArgumentError, match="no file can be named"):
        write(tmp_path / f"{bad}{name}")
    assert list(tmp_path.iterdir()) == []


def test_what_a_pipe_is_sent_is_read_at_its_other_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    while reader.is_alive():
        try:
            files.write(tmp_path / "pipe", b"Q" * 200_000)  # more than a pipe holds
        except ArgumentError:  # the reader has yet to open it
            continue
        break
    reader.join()
    assert read == [b"Q" * 200_000]


def test_a_device_is_written_to(tmp_path):
    device = Path(os.devnull).stat().st_rdev
    mg.save(os.devnull, model=Linear(3, 2, rng=0))
    files.write(os.devnull, b"gone")
    assert Path(os.devnull).stat().st_rdev == device


def test_two_writers_of_one_path_each_write_a_whole_file(tmp_path):
    models = [Linear(50, 50, rng=seed) for seed in range(2)]
    path, failed = tmp_path / "run.npz", []

    def write(model):
        try:
            for step in range(20):
                mg.save(path, model=model, step=step)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=[model]) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert mg.load(path, model=Linear(50, 50))["step"] == 19
    assert sorted(os.listdir(tmp_path)) == ["run.npz", "run.npz.1"]


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "run.npz")
    with pytest.raises(FileError, match="is no regular file"):
        mg.load(tmp_path / "run.npz")


def test_what_a_killed_save_left_is_removed_by_a_later_one(tmp_path):
    for age, name in ((0, "young"), (10**6, "old")):
        left = tmp_path / f".run.npz.{name}.unfinished"
        left.write_bytes(b"half")
        os.utime(left, (left.stat().st_mtime - age,) * 2)
    mg.save(tmp_path / "run.npz", step=1)
    assert sorted(os.listdir(tmp_path)) == [".run.npz.young.unfinished", "run.npz"]
