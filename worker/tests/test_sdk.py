"""The SDK against a fake agent."""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent import JOB, FakeAgent, environment

import headway
from headway.environment import Environment

CONFIGURE = {
    "type": "configure",
    "revision": 2,
    "configuration": {"layout": {"dp": 4, "tp": 1, "pp": 1}, "micro_batch": 4, "global_batch": 32},
    "lr_scale": 1.414,
}


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "agent.sock")
    for name, value in environment(fake, 4, 4, 16).items():
        monkeypatch.setenv(name, value)
    yield fake
    fake.hang_up()
    headway.close(timeout_s=0.0)


def next_directive(agent: FakeAgent) -> headway.Directive:
    found: list[headway.Directive] = []

    def arrived() -> bool:
        if (directive := headway.poll()) is not None:
            found.append(directive)
        return bool(found)

    agent.serve(arrived)
    return found[0]


def report(step: int) -> None:
    headway.report(step=step, samples_seen=16 * step, tokens=1024, duration_s=0.5, loss=2.5)


def test_outside_headway_nothing_happens() -> None:
    assert headway.init() is None
    report(1)
    headway.busy(0.5)
    headway.checkpoint_done(step=1, samples_seen=1, path="/", manifest_sha256="", duration_s=0.0)
    assert headway.poll() is None
    headway.close()
    assert threading.active_count() == 1


def test_a_rank_tells_how_long_it_worked_once_a_second(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    headway.init()
    monkeypatch.setattr(headway.session, "BUSY_EVERY_S", 3600.0)
    headway.busy(0.25)
    headway.busy(float("nan"))
    headway.busy(0.5, steps=2)
    monkeypatch.setattr(headway.session, "BUSY_EVERY_S", 0.0)
    headway.busy(0.25)
    agent.serve(lambda: bool(agent.of("busy")))
    assert agent.of("busy") == [{"type": "busy", "steps": 4, "busy_s": 1.0}]


def test_importing_the_sdk_does_not_import_torch() -> None:
    code = "import sys, headway; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-S", "-c", code], env=environment).returncode == 0


def test_hello_comes_first_and_reports_follow_the_welcome(agent: FakeAgent) -> None:
    launched = headway.init()
    assert launched is not None and launched.configuration is not None
    assert launched.configuration.accumulation() == 1
    assert threading.active_count() == 1, "the thread starts with the first call, after any fork"
    noise = headway.NoiseSample(0.81, 0.22, 4.0, 16.0)
    headway.report(step=120, steps=4, samples_seen=7680, tokens=65536, duration_s=2.41, loss=2.317, noise=noise)
    headway.phases({"import": 3.1})
    agent.serve(lambda: bool(agent.of("phases")))
    hello, step, phases = agent.messages
    assert hello == {
        "type": "hello",
        "version": 1,
        "job": JOB,
        "generation": 1,
        "secret": "5ec2e7",
        "rank": 0,
        "pid": os.getpid(),
        "capabilities": {"batch": "live", "layout": "restart"},
    }
    assert step == {
        "type": "step",
        "step": 120,
        "steps": 4,
        "samples_seen": 7680,
        "tokens": 65536,
        "duration_s": 2.41,
        "configuration": {"layout": {"dp": 4, "tp": 1, "pp": 1}, "micro_batch": 4, "global_batch": 16},
        "loss": 2.317,
        "noise": {"small_sqr": 0.81, "big_sqr": 0.22, "small_batch": 4.0, "big_batch": 16.0},
    }
    assert phases == {"type": "phases", "phases": {"import": 3.1}}


def test_the_start_of_a_rank_counts_from_the_launch_to_its_process(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = time.time() - 100.0
    monkeypatch.setenv("HEADWAY_LAUNCHED_AT", f"{launched:.6f}")
    monkeypatch.setenv("HEADWAY_STARTED_AT", f"{launched + 1.5:.6f}")
    headway.init()
    headway.phases({"import": 3.1})
    headway.phases({"reshard_build": 0.2})
    agent.serve(lambda: len(agent.of("phases")) == 2)
    assert [one["phases"] for one in agent.of("phases")] == [{"startup": 1.5, "import": 3.1}, {"reshard_build": 0.2}]
    monkeypatch.delenv("HEADWAY_STARTED_AT")
    started = Environment.read(os.environ)
    assert started is not None and started.startup_s is not None
    assert 0.0 <= started.startup_s <= 100.0, "this process began between then and now, or before"


def test_a_loss_that_is_no_number_is_told_once(agent: FakeAgent) -> None:
    headway.init()
    for step in (1, 2):
        headway.report(step=step, samples_seen=8 * step, tokens=8, duration_s=1.0, loss=float("nan"))
    agent.serve(lambda: len(agent.of("step")) == 2)
    assert agent.of("loss_anomaly") == [{"type": "loss_anomaly", "step": 1}]


def test_nothing_but_hello_goes_out_without_a_welcome(agent: FakeAgent) -> None:
    agent.welcoming = False
    headway.init()
    report(1)
    agent.serve(lambda: bool(agent.messages))
    agent.say({"type": "from_the_future"})
    agent.serve_once(lambda _: None)
    assert [message["type"] for message in agent.messages] == ["hello"]
    agent.say({"type": "welcome"})
    agent.serve(lambda: bool(agent.of("step")))


def test_the_newest_configuration_wins_and_repeats_are_harmless(agent: FakeAgent) -> None:
    headway.init()
    headway.poll()
    agent.serve(lambda: bool(agent.connections))
    agent.say({**CONFIGURE, "revision": 1}, {"type": "unknown", "x": 1}, CONFIGURE)
    agent.say_raw(b'not json\n[]\n{"type":"configure","revision":9}\n')
    agent.say(CONFIGURE, {**CONFIGURE, "revision": 1}, {"type": "checkpoint"})
    headway.report(step=1, samples_seen=1, tokens=1, duration_s=1.0)
    configure = next_directive(agent)
    while isinstance(configure, headway.Configure) and configure.revision == 1:
        configure = next_directive(agent)
    assert isinstance(configure, headway.Configure)
    assert (configure.revision, configure.configuration.global_batch, configure.lr_scale) == (2, 32, 1.414)
    assert next_directive(agent) == headway.Checkpoint()
    assert headway.poll() is None


def test_a_stop_arrives_beside_other_requests_and_is_answered(agent: FakeAgent) -> None:
    headway.init()
    headway.poll()
    agent.serve(lambda: bool(agent.of("hello")))
    agent.say({"type": "checkpoint"}, CONFIGURE, {"type": "stop", "checkpoint": True, "grace_s": 30.0})
    directives = [next_directive(agent) for _ in range(3)]
    stop = headway.Stop(checkpoint=True, grace_s=30.0)
    assert stop in directives and stop.exit_code == 0
    headway.stopped(step=121, samples_seen=7744)
    agent.serve(lambda: agent.messages[-1] == {"type": "stopped", "step": 121, "samples_seen": 7744})


def test_sigterm_means_stop_with_a_checkpoint(agent: FakeAgent) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        headway.init()
        signal.raise_signal(signal.SIGTERM)
        stop = headway.poll()
        assert stop == headway.Stop(checkpoint=True, signalled=True) and stop.exit_code == 143
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_of_the_scripts_own_is_called_as_well_and_is_back_after_close(agent: FakeAgent) -> None:
    before = signal.getsignal(signal.SIGTERM)
    heard: list[int] = []

    def own(number: int, _frame: object) -> None:
        heard.append(number)

    try:
        signal.signal(signal.SIGTERM, own)
        headway.init()
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM] and isinstance(headway.poll(), headway.Stop)
        headway.close(timeout_s=0.0)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_second_init_is_refused_and_one_off_the_main_thread_says_what_it_cannot_do(
    agent: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=headway.init)
    thread.start()
    thread.join()
    assert headway.joined() is not None and signal.getsignal(signal.SIGTERM) is before
    assert "SIGTERM ends this process before it is asked to save" in caplog.text
    with pytest.raises(RuntimeError, match="called before"):
        headway.init()


def test_numbers_of_any_library_are_reported(agent: FakeAgent) -> None:
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    headway.init()
    headway.report(
        step=np.int64(3),
        samples_seen=torch.tensor(48),
        tokens=np.float32(1024.0),
        duration_s=torch.tensor(0.5, dtype=torch.float64),
        steps=np.uint8(1),
        loss=torch.tensor([2.5]),
        memory_peak=np.float64(4096.0),
    )
    agent.serve(lambda: bool(agent.of("step")))
    told = agent.of("step")[0]
    assert (told["step"], told["samples_seen"], told["tokens"], told["steps"]) == (3, 48, 1024, 1)
    assert (told["duration_s"], told["loss"], told["memory_peak"]) == (0.5, 2.5, 4096)


def test_what_is_no_number_is_refused_by_name_and_breaks_nothing_after_it(
    agent: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TypeError, match="samples_seen must be a number, not str"):
        headway.report(step=1, samples_seen="many", tokens=1, duration_s=0.5)  # type: ignore[arg-type]
    headway.init()
    for step in range(40):
        report(step)
    with pytest.raises(TypeError, match="loss must be a number, not list"):
        headway.report(step=40, samples_seen=1, tokens=1, duration_s=0.5, loss=[2.5])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"step must be a whole number, not 1\.5"):
        headway.report(step=1.5, samples_seen=1, tokens=1, duration_s=0.5)
    for _ in range(2):
        headway.report(step=41, samples_seen=1, tokens=1, duration_s=float("nan"))
    assert caplog.text.count("duration_s is nan") == 1
    headway.report(step=42, samples_seen=1, tokens=1, duration_s=0.5, loss=100.0)
    agent.serve(lambda: bool(agent.of("loss_anomaly")))
    assert agent.of("loss_anomaly")[0]["step"] == 42, "what is usual was not forgotten"
    agent.serve(lambda: agent.of("step")[-1]["step"] == 42)
    assert all(told["step"] not in (40, 41) for told in agent.of("step"))


def test_heartbeats_come_without_any_step(agent: FakeAgent) -> None:
    headway.init(heartbeat_s=0.05)
    headway.poll()
    agent.serve(lambda: len(agent.of("heartbeat")) >= 3)


def test_an_agent_that_does_not_answer_costs_no_cpu(agent: FakeAgent) -> None:
    agent.welcoming = False
    headway.init(heartbeat_s=0.01)
    report(1)
    agent.serve(lambda: bool(agent.of("hello")))
    spent, end = time.process_time(), time.monotonic() + 0.5
    agent.serve(lambda: time.monotonic() > end)
    assert time.process_time() - spent < 0.2


def test_a_process_with_many_open_files_is_heard(agent: FakeAgent) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(2048, limits[1])), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        headway.init()
        report(1)
        agent.serve(lambda: bool(agent.of("step")))
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_thread_survives_what_it_does_not_understand(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise ValueError("not today")

    headway.init()
    with monkeypatch.context() as patched:
        patched.setattr("headway.session.parse_directive", refuse)
        headway.poll()
        agent.serve(lambda: bool(agent.of("hello")))
        agent.say({"type": "checkpoint"})
        agent.serve(lambda: not agent.connections)
    report(1)
    agent.serve(lambda: bool(agent.of("step")))


def test_a_worker_outlives_its_agent_and_reconnects(agent: FakeAgent) -> None:
    headway.init()
    report(1)
    agent.serve(lambda: bool(agent.of("step")))
    agent.hang_up()
    report(2)
    headway.checkpoint_done(step=2, samples_seen=32, path="/c", manifest_sha256="ab", duration_s=0.1)
    agent.messages.clear()
    agent.listen()
    agent.serve(lambda: bool(agent.of("checkpoint")))
    assert agent.messages[0]["type"] == "hello"


def test_a_full_queue_drops_the_oldest_steps_and_no_checkpoint(agent: FakeAgent) -> None:
    agent.hang_up()
    headway.init()
    report(0)
    headway.checkpoint_done(step=0, samples_seen=0, path="/c", manifest_sha256="ab", duration_s=0.1)
    took = []
    for step in range(1, 2000):
        started = time.monotonic()
        report(step)
        took.append(time.monotonic() - started)
    assert statistics.median(took) < 0.5e-3, "reporting never waits"
    agent.listen()
    agent.serve(lambda: any(message.get("step") == 1999 for message in agent.of("step")))
    assert len(agent.of("checkpoint")) == 1
    assert len(agent.of("step")) <= 257


def test_what_is_not_a_number_stays_out_of_the_json(agent: FakeAgent) -> None:
    headway.init()
    noise = headway.NoiseSample(float("nan"), 1.0, 1.0, 2.0)
    headway.report(step=1, samples_seen=1, tokens=1, duration_s=1.0, loss=float("inf"), noise=noise)
    agent.serve(lambda: bool(agent.of("step")))
    assert not {"loss", "noise"} & agent.of("step")[0].keys()
    json.dumps(agent.messages, allow_nan=False)


def test_close_delivers_what_is_queued(agent: FakeAgent) -> None:
    headway.init()
    report(1)
    closing = threading.Thread(target=headway.close, args=(10.0,))
    closing.start()
    agent.serve(lambda: not closing.is_alive())
    agent.serve(lambda: bool(agent.of("step")))
    assert threading.active_count() == 1


def test_close_gives_up_on_an_absent_agent(agent: FakeAgent) -> None:
    agent.hang_up()
    headway.init()
    report(1)
    started = time.monotonic()
    headway.close(timeout_s=0.3)
    assert time.monotonic() - started < 3.0
