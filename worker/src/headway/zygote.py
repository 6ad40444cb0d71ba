"""A warm interpreter: one that has imported what training imports, and forks workers on the agent's word, so that a
restart pays for no import. Started by the agent alone, as `python -m headway.zygote` with one end of a socket as its
standard input; docs/worker-protocol.md, "Warm starts", is the contract.

It holds no thread and no CUDA context, and never runs a job's code itself. A worker that it forks finds what a cold
start would give it: variables, arguments, working directory, output, process group, signals. Ends with its agent; what
it forked goes on.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from headway.launch import one_thread_per_library

VERSION = 1
# What a training script imports sooner or later. The packages of this project are left out: a worker takes them up
# fresh, in the state in which a cold start would find them.
PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
)
MODULES = ("headway.run", "headway.trainer")
MAX_REQUEST_BYTES = 4 << 20
MAX_DESCRIPTORS = 64  # three, and one for each secret
SET_UP_TIMEOUT_S = 5.0
CANNOT_ENTER = 126


class Refusal(Exception):
    """Why this interpreter cannot serve a launch; the agent starts that one cold."""


@dataclass
class Launch:
    """What the agent wants run, in the process that is to run it."""

    module: str
    arguments: list[str]
    directory: str

    def run(self) -> None:
        """Hands the process over to the job. Called with nothing of the zygote left on the stack but its entry."""
        for name in [name for name in sys.modules if name == "headway" or name.startswith("headway.")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = self.directory  # as `python -m` has it
        sys.argv = [self.module, *self.arguments]
        sys.orig_argv = [sys.orig_argv[0], "-m", *sys.argv]
        _draw_anew()
        gc.enable()
        try:
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            # The trainer holds nothing that an interpreter must be taken apart for, which takes as long as a start.
            if self.module == "headway.trainer":
                _leave(end)
            raise
        finally:
            gc.unfreeze()  # what others hold is released as at any other end


class _Shown:
    """The memory that /proc shows as a process's arguments and environment. It stays what it was when the interpreter
    started, whatever `os.environ` says later; the agent finds the processes of a launch by it."""

    def __init__(self) -> None:
        with open("/proc/self/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        self._arguments = int(fields[45]), int(fields[46])
        self._environment = int(fields[47]), int(fields[48])
        if 0 in (*self._arguments, *self._environment):
            raise Refusal("the kernel does not say where its environment lies")

    def show(self, arguments: list[str], variables: dict[str, str]) -> None:
        """The variables that identify a launch come first: what finds no room is left out at the end."""
        ordered = sorted(variables.items(), key=lambda item: (not item[0].startswith("HEADWAY_"), item[0]))
        _fill(self._arguments, arguments)
        _fill(self._environment, [f"{name}={value}" for name, value in ordered])
        mark = f"HEADWAY_LAUNCH={variables['HEADWAY_LAUNCH']}".encode()
        with open("/proc/self/environ", "rb") as shown:
            if mark not in shown.read().split(b"\0"):
                raise Refusal("the mark of the launch does not show")


class _Agent:
    """The other end of the socket: one line with descriptors in, one line out."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def say(self, **message: object) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def next_request(self) -> tuple[dict[str, Any], list[int]] | None:
        """None once the agent is gone."""
        text, descriptors = b"", []
        while not text.endswith(b"\n"):
            data, more, _, _ = socket.recv_fds(self.connection, 1 << 16, MAX_DESCRIPTORS)
            descriptors += more
            text += data
            if not data or len(text) > MAX_REQUEST_BYTES:
                return None
        return json.loads(text), descriptors


class _Zygote:
    def __init__(self, agent: _Agent) -> None:
        self._agent = agent
        self._shown = _Shown()
        self._made_of = _made_of()

    def serve(self) -> Launch | None:
        """Forks a worker per request. Returns the launch in a worker, None once the agent is gone."""
        while (request := self._agent.next_request()) is not None:
            launch, descriptors = request
            if _made_of() != self._made_of:
                self._agent.say(refused="its files have changed since it imported them")
                return None
            ready, told = os.pipe()
            supervisor = os.fork()
            if supervisor == 0:
                os.close(ready)
                return self._begin(launch, descriptors, told)
            for descriptor in (*descriptors, told):
                os.close(descriptor)
            answer = _read_soon(ready)
            os.close(ready)
            if answer == b"ready":
                self._agent.say(pid=supervisor)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(supervisor, signal.SIGKILL)
                self._agent.say(refused=answer.decode(errors="replace") or "the new process gave no sign of life")
        return None

    def _begin(self, request: dict[str, Any], descriptors: list[int], told: int) -> Launch:
        """In the new process: becomes what the agent's shell is to a cold start, waits for the word to go, forks the
        worker and watches it. Returns in the worker only."""
        try:
            output, exit_status, go, *secrets = descriptors
            os.setpgid(0, 0)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda *_: None)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._agent.connection.close()
            variables: dict[str, str] = request["variables"]
            module, *arguments = request["arguments"]
            if module not in MODULES:
                raise Refusal(f"it does not run {module}")
            variables.update(_handed(request.get("secrets", []), secrets))
            os.environ.clear()
            self._shown.show([sys.orig_argv[0], "-m", module, *arguments], variables)
            os.environ.update(variables)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            os.umask(0o022)
        except BaseException as error:
            os.write(told, f"{type(error).__name__}: {error}".encode()[:512])
            os._exit(1)
        os.write(told, b"ready")
        os.close(told)
        if not os.read(go, 1):
            os._exit(1)  # the agent is gone, or starts this one cold
        os.close(go)
        _supervise(exit_status, request["directory"])
        return Launch(module, arguments, os.getcwd())


def _handed(names: list[str], descriptors: list[int]) -> dict[str, str]:
    """How the job finds its secrets: by descriptors, which what it starts inherits, and by paths that last as long as
    this process, which watches over the worker."""
    if len(names) != len(descriptors):
        raise Refusal(f"{len(names)} secrets were named and {len(descriptors)} came")
    found = {}
    for name, descriptor in zip(names, descriptors, strict=True):
        os.set_inheritable(descriptor, True)
        found[f"HEADWAY_SECRET_{name}_FD"] = str(descriptor)
        found[f"{name}_FILE"] = f"/proc/{os.getpid()}/fd/{descriptor}"
    return found


def _leave(end: SystemExit) -> None:
    """Ends the process after all that has asked to be waited for or called at its end."""
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _supervise(exit_status: int, directory: str) -> None:
    """Forks, and returns in the child. The parent stays, keeps signals from itself (the child gets them) and records
    how the child ended, in place: the file has its blocks already, should the disk be full."""
    # A signal between fork and handler must not get lost.
    caught = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, caught)
    try:
        os.chdir(directory)
        worker = os.fork()
    except OSError as error:
        os.write(2, f"headway: {error}\n".encode())
        _end(exit_status, CANNOT_ENTER)
    if worker == 0:
        os.close(exit_status)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
        return
    signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    _end(exit_status, code if code >= 0 else 128 - code)


def _end(exit_status: int, code: int) -> None:
    os.pwrite(exit_status, f"{code:<7}\n".encode(), 0)
    os._exit(code)


def _fill(where: tuple[int, int], words: list[str]) -> None:
    """Whole words as far as they fit, then zeros."""
    start, end = where
    room = end - start
    text = b""
    for word in words:
        one = os.fsencode(word) + b"\0"
        if len(text) + len(one) > room:
            break
        text += one
    ctypes.memmove(start, text.ljust(room, b"\0"), room)


def _read_soon(descriptor: int) -> bytes:
    """What comes within the time for setting up a process; nothing if that ends first."""
    ready, _, _ = select.select([descriptor], [], [], SET_UP_TIMEOUT_S)
    return os.read(descriptor, 4096) if ready else b""


def _made_of() -> list[tuple[int, int]]:
    """Tells one state of the interpreter and of what it imported from another."""
    torch = sys.modules["torch"].__file__ or ""
    files = [os.path.realpath(sys.executable), torch, os.path.join(os.path.dirname(torch), "version.py"), __file__]
    states = []
    for file in files:
        with contextlib.suppress(OSError):
            state = os.stat(file)
            states.append((state.st_ino, state.st_mtime_ns))
    return states


def _draw_anew() -> None:
    """What was drawn at import must not be the same in all workers; `random` sees to itself."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)


def _import() -> None:
    one_thread_per_library()
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            if name == "torch":
                raise Refusal(f"it cannot import torch: {error}") from error
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise Refusal(f"the imports started {threads - 1} threads")
    if sys.modules["torch"].cuda.is_initialized():
        raise Refusal("the imports initialised CUDA")


def _take_socket() -> socket.socket:
    """From standard input, which becomes what a worker's is."""
    connection = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return connection


def main() -> int:
    """Serves until the agent is gone; in a worker, runs the job."""
    agent = _Agent(_take_socket())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here asks how a worker ended
    began = time.monotonic()
    try:
        _import()
        zygote = _Zygote(agent)
    except Refusal as refusal:
        agent.say(refused=str(refusal))
        return 1
    # What is there now is never looked at by the collector again, so that workers go on sharing it.
    gc.disable()
    gc.collect()
    gc.freeze()
    agent.say(ready=VERSION, import_s=round(time.monotonic() - began, 3))
    launch = zygote.serve()
    if launch is not None:
        del agent, zygote
        launch.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
