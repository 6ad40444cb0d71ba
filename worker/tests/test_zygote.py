"""Workers forked from a warm interpreter: what they find, and what happens when something goes wrong."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SOURCES = Path(__file__).parents[1] / "src"
MARK = "node/job/g1/0/"
# Tells, as one line of JSON, what a worker can see of itself. Workers share the file: `print` would write a line and
# its end apart, and another's line could come between.
LOOK = """
import json, os, random, signal, sys
mask = os.umask(0); os.umask(mask)
os.write(1, json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "cwd": os.getcwd(), "environment": dict(os.environ),
    "shown": open("/proc/self/environ").read().rstrip("\\0").split("\\0"), "umask": mask,
    "leader": os.getpgrp() == os.getppid(), "stdin": os.readlink("/proc/self/fd/0"),
    "default": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "drawn": random.random(),
    "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4],
}).encode() + b"\\n")
"""
# Says that it is up, and exits with a code of its own once it is asked to end.
STAY = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
with open("word", "w") as word:
    word.write("up")
signal.pause()
"""
DEADLINE_S = 60.0


class Warm:
    """A zygote whose torch is a stand-in that imports in no time."""

    def __init__(self, directory: Path, torch: str = "from torch import cuda\n") -> None:
        self.directory = directory
        package = directory / "lib" / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(torch)
        (package / "cuda.py").write_text("def is_initialized():\n    return False\n")
        (package / "version.py").touch()
        self.library = package.parent
        os.mkfifo(directory / "word")
        self._word = os.open(directory / "word", os.O_RDONLY | os.O_NONBLOCK)
        self.socket, inner = socket.socketpair()
        self.socket.settimeout(DEADLINE_S)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway.zygote", " " * 200],
            stdin=inner,
            cwd="/",
            env={"PYTHONPATH": f"{SOURCES}:{self.library}", "PYTHONUNBUFFERED": "1", "ROOM": "." * 8000},
        )
        inner.close()

    def heard(self) -> dict[str, object]:
        text = b""
        while not text.endswith(b"\n"):
            data = self.socket.recv(4096)
            assert data, f"the zygote ended after {text!r}"
            text += data
        return dict(json.loads(text))

    def hear_up(self) -> None:
        """Waits for the word of a worker that stays."""
        assert _readable(self._word), "no worker came up"
        assert os.read(self._word, 16) == b"up"

    def start(
        self, *arguments: str, go: bool = True, directory: str | None = None, secrets: dict[str, str] | None = None
    ) -> Worker:
        """Asks for a worker and, unless told otherwise, lets it go."""
        variables = {"HEADWAY_LAUNCH": MARK, "PYTHONPATH": f"{SOURCES}:{self.library}", "JOB": "1"}
        request = {"arguments": list(arguments), "variables": variables, "directory": directory or str(self.directory)}
        named = {"secrets": list(secrets)} if secrets else {}
        return Worker(self, json.dumps(request | named).encode() + b"\n", go, list((secrets or {}).values()))

    def script(self, text: str) -> str:
        (self.directory / "script.py").write_text(text)
        return str(self.directory / "script.py")

    def close(self) -> None:
        self.socket.close()
        os.close(self._word)
        self.process.wait(timeout=DEADLINE_S)


class Worker:
    def __init__(self, warm: Warm, request: bytes, go: bool, secrets: list[str]) -> None:
        self.output = warm.directory / "log"
        self.status = warm.directory / "exit"
        self.status.write_text("       \n")
        waits, self.go = os.pipe()
        output = os.open(self.output, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        descriptors = [output, os.open(self.status, os.O_RDWR), waits, *map(_in_memory, secrets)]
        socket.send_fds(warm.socket, [request], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self.answer = warm.heard()
        self.pid = int(str(self.answer.get("pid", 0)))
        # Nothing runs before the word to go, so the process is still there.
        self._process = os.pidfd_open(self.pid) if self.pid else None
        if go:
            os.write(self.go, b"!")
            os.close(self.go)

    def code(self) -> int:
        """Waits for the end; the exit status as an agent reads it."""
        self.end()
        return int(self.status.read_text())

    def end(self) -> None:
        assert self._process is not None, self.answer
        assert _readable(self._process), "it has not ended"
        os.close(self._process)
        self._process = None


def _in_memory(text: str) -> int:
    descriptor = os.memfd_create("secret")
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _readable(descriptor: int) -> bool:
    """Once something was written to a pipe, or a process has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(DEADLINE_S * 1000.0))


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Warm]:
    zygote = Warm(tmp_path)
    assert zygote.heard()["ready"] == 1
    yield zygote
    zygote.close()


# Reads the last of its secrets, as a child that was handed no descriptors and by the descriptor itself.
ASK = """
import json, os, subprocess, headway
child = subprocess.run(["sh", "-c", "cat $KEY_31_FILE"], close_fds=True, capture_output=True, text=True)
with os.fdopen(int(os.environ["HEADWAY_SECRET_KEY_31_FD"])) as file:
    by_descriptor = file.read()
shown = "value" in open("/proc/self/environ").read()
print(json.dumps([child.stdout, by_descriptor, headway.secret("KEY_0"), shown]), flush=True)
"""


def test_a_worker_reads_as_many_secrets_as_a_job_may_have_and_shows_none(warm: Warm) -> None:
    secrets = {f"KEY_{number}": f"value {number}" for number in range(32)}
    worker = warm.start("headway.run", warm.script(ASK), secrets=secrets)
    assert worker.code() == 0, worker.output.read_text()
    assert json.loads(worker.output.read_text()) == ["value 31", "value 31", "value 0", False]


def test_a_worker_finds_what_a_cold_start_would_give_it(warm: Warm) -> None:
    script = warm.script(LOOK)
    workers = [warm.start("headway.run", script, "--lr", "3"), warm.start("headway.run", script)]
    assert [worker.code() for worker in workers] == [0, 0]
    one, two = sorted(map(json.loads, workers[0].output.read_text().splitlines()), key=lambda one: -len(one["argv"]))
    assert one["argv"] == [script, "--lr", "3"] and two["argv"] == [script]
    assert one["name"] == "__main__" and one["cwd"] == str(warm.directory) and one["path"] == str(warm.directory)
    assert one["environment"]["JOB"] == "1" and "ROOM" not in one["environment"]
    assert one["shown"][0] == f"HEADWAY_LAUNCH={MARK}" and "JOB=1" in one["shown"]
    assert one["umask"] == 0o022 and one["leader"] and one["default"]
    assert one["stdin"] == "/dev/null" and one["descriptors"] == [0, 1, 2, 3]
    assert one["drawn"] != two["drawn"]


def test_how_a_worker_ended_is_written_down(warm: Warm) -> None:
    for text, code in [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("1 / 0", 1)]:
        assert warm.start("headway.run", warm.script(text)).code() == code
    assert "ZeroDivisionError" in (warm.directory / "log").read_text()
    assert warm.start("headway.run", warm.script(""), directory="/no/such/place").code() == 126


def test_a_signal_to_the_group_reaches_the_worker_and_not_its_supervisor(warm: Warm) -> None:
    worker = warm.start("headway.run", warm.script(STAY))
    warm.hear_up()
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.code() == 5


def test_nothing_runs_before_the_word_to_go(warm: Warm) -> None:
    worker = warm.start("headway.run", warm.script("print('ran')"), go=False)
    assert Path(f"/proc/{worker.pid}/environ").read_bytes().startswith(f"HEADWAY_LAUNCH={MARK}\0".encode())
    os.close(worker.go)
    worker.end()
    assert worker.output.read_text() == "" and worker.status.read_text().strip() == ""


def test_a_worker_outlives_the_zygote(warm: Warm) -> None:
    worker = warm.start("headway.run", warm.script(STAY))
    warm.hear_up()
    warm.process.kill()
    warm.process.wait()
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.code() == 5


def test_code_of_this_project_is_taken_up_fresh(warm: Warm) -> None:
    text = "import sys\nprint('headway.zygote' in sys.modules, 'headway.launch' in sys.modules, 'torch' in sys.modules)"
    worker = warm.start("headway.run", warm.script(text))
    assert worker.code() == 0
    assert worker.output.read_text() == "False True True\n"


def test_a_zygote_refuses_what_it_does_not_run_and_goes_on(warm: Warm) -> None:
    assert "does not run http.server" in str(warm.start("http.server", go=False).answer["refused"])
    assert warm.start("headway.run", warm.script("")).code() == 0


def test_a_zygote_whose_files_changed_refuses_and_ends(warm: Warm) -> None:
    (warm.library / "torch" / "version.py").write_text("__version__ = '99'\n")
    assert "changed" in str(warm.start("headway.run", warm.script(""), go=False).answer["refused"])
    assert warm.process.wait(timeout=60.0) == 0


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        ("raise ImportError('no libcudart')\n", "no libcudart"),
        (
            "import signal, threading\nfrom torch import cuda\n"
            "threading.Thread(target=signal.sigwait, args=([10],), daemon=True).start()\n",
            "1 threads",
        ),
        ("from torch import cuda\ncuda.is_initialized = lambda: True\n", "CUDA"),
    ],
)
def test_an_interpreter_that_must_not_be_forked_says_why(tmp_path: Path, torch: str, reason: str) -> None:
    zygote = Warm(tmp_path, torch)
    assert reason in str(zygote.heard()["refused"])
    assert zygote.process.wait(timeout=60.0) == 1
    zygote.close()


def test_a_zygote_ends_with_its_agent(warm: Warm) -> None:
    warm.socket.close()
    assert warm.process.wait(timeout=60.0) == 0
