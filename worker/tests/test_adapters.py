"""The pages of docs/adapters: what stands there is run as it stands, under a fake agent, where its framework is
installed (docs/adapters/README.md says how to have them all)."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from agent import FakeAgent, Message, Worker, environment, resumed_from

from headway import checkpoint
from headway.watch import GROUPS, Reader, Sizes

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "adapters"
TORCHRUN = ["-m", "torch.distributed.run", "--nnodes=1", "--node-rank=0"]
WIDER = {"layout": {"dp": 2, "tp": 1, "pp": 1}, "micro_batch": 8, "global_batch": 16}


@dataclass(frozen=True)
class Page:
    """A page with a script, and what it promises."""

    name: str
    needs: str = "torch"
    live: bool = True
    resumes_on: int = 2
    launcher: str = "torchrun"
    """Or "none", where the script starts its ranks itself; or "fork", which spares them importing PyTorch again."""


SCRIPTS = [
    Page("plain-ddp", resumes_on=1, launcher="fork"),
    Page("accelerate", "accelerate", resumes_on=1),
    Page("huggingface", "transformers", resumes_on=1),
    Page("deepspeed", "deepspeed", live=False),
    Page("lightning", "lightning", live=False, resumes_on=1),
    Page("ray-train", "ray", launcher="none"),
]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


class Run:
    """One launch of a page's script."""

    def __init__(self, folder: Path, page: Page) -> None:
        self.folder, self.page = folder, page
        (script,) = blocks(page.name, "python")
        (folder / "train.py").write_text(script)
        self.agent = FakeAgent(folder / "agent.sock")

    def go(self, ranks: int, steps: int, hear: Callable[[Message], None] = lambda _: None, **more: str) -> None:
        """To its good end."""
        launched = environment(
            self.agent, ranks, 4, 16, HEADWAY_CHECKPOINT_DIR=str(self.folder / "saved"), HEADWAY_LR_SCALE="2", **more
        )
        path = os.pathsep.join([str(ROOT / "worker" / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        told = {**os.environ, **launched, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "true"}
        told["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), told["PATH"]])  # DeepSpeed wants ninja
        self.agent.messages.clear()
        if self.page.launcher == "fork":
            return self._fork(ranks, steps, hear, told)
        command = [sys.executable]
        if self.page.launcher == "torchrun":
            command += [*TORCHRUN, f"--nproc-per-node={ranks}", f"--master-port={launched['MASTER_PORT']}"]
        log = self.folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [*command, "train.py", str(steps)],
                cwd=self.folder,
                env=told,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self.agent.serve(lambda: process.poll() is not None, deadline_s=600.0, hear=hear)
            self.agent.serve(lambda: not self.agent.connections, deadline_s=5.0)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert process.returncode == 0, log.read_text()[-8000:]

    def _fork(self, ranks: int, steps: int, hear: Callable[[Message], None], told: dict[str, str]) -> None:
        def main() -> int:
            os.chdir(self.folder)
            sys.argv = ["train.py", str(steps)]
            torch.set_num_threads(1)
            try:
                runpy.run_path("train.py", run_name="__main__")
            except SystemExit as end:
                return int(end.code or 0)
            return 0

        workers = [
            Worker(main, {**told, "RANK": str(rank), "LOCAL_RANK": str(rank)}, self.folder / f"log{rank}")
            for rank in range(ranks)
        ]
        try:
            self.agent.serve(lambda: all([worker.ended() for worker in workers]), hear=hear)
            self.agent.serve(lambda: not self.agent.connections, deadline_s=5.0)
        finally:
            for worker in workers:
                worker.kill()
        assert [worker.code for worker in workers] == [0] * ranks, [worker.output.read_text() for worker in workers]


@pytest.mark.parametrize("page", SCRIPTS, ids=lambda page: page.name)
def test_the_script_of_a_page_reports_follows_stops_and_resumes(page: Page, tmp_path: Path) -> None:
    pytest.importorskip(page.needs)
    run = Run(tmp_path, page)
    agent = run.agent

    def change_then_stop(message: Message) -> None:
        if message["type"] != "step":
            return
        if page.live and message["configuration"] != WIDER:
            if len(agent.of("step")) == 1:
                agent.say({"type": "configure", "revision": 0, "configuration": WIDER, "lr_scale": 1.0})
        elif "stop" not in asked:
            asked.append("stop")
            agent.say({"type": "stop", "checkpoint": True, "grace_s": 30.0})

    asked: list[str] = []
    run.go(2, 1_000_000, change_then_stop)
    hello = agent.of("hello")[0]
    assert hello["capabilities"] == {"batch": "live" if page.live else "restart", "layout": "restart"}
    steps, (saved,), stopped = agent.of("step"), agent.of("checkpoint"), agent.of("stopped")
    assert stopped[0]["step"] == saved["step"] == steps[-1]["step"]
    assert any("noise" in step for step in steps)
    assert saved["samples_seen"] == 16 * saved["step"]
    checkpoint.verify(saved["path"], checkpoint.read_manifest(saved["path"]))

    run.go(page.resumes_on, saved["step"] + 7, **resumed_from(saved))
    steps = agent.of("step")
    assert steps[0]["step"] - steps[0]["steps"] == saved["step"], "it goes on where it had saved"
    assert sum(step["steps"] for step in steps) == 7, "and tells of each step to the last"
    assert steps[-1]["samples_seen"] == saved["samples_seen"] + 7 * 16
    agent.hang_up()


@pytest.mark.parametrize("page", ["torchtitan", "megatron-lm"])
def test_the_pattern_of_an_untouched_framework_reads_the_line_it_prints(page: str) -> None:
    (line,) = blocks(page, "text")
    example = (ROOT / "examples" / "training" / f"{page.removesuffix('-lm')}.yaml").read_text()
    found = re.search(r"--line '([^']+)'", example)
    assert found is not None
    pattern = re.compile(found[1])
    assert set(pattern.groupindex) <= GROUPS
    reader = Reader(pattern, Sizes(samples=16, tokens=None, sequence_length=64, resumes=True), 0, started=0.0)
    first, *rest = [reader.read(each, now) for now, each in enumerate(line.splitlines(), 1)]
    told = [each for each in rest if each is not None]
    assert first is None or first["step"] < told[0]["step"]
    assert told and all(each["samples_seen"] == 16 * each["step"] and 0.0 < each["loss"] < 20.0 for each in told)


def test_every_page_is_in_the_table_and_every_link_leads_somewhere() -> None:
    pages = sorted(PAGES.glob("*.md"))
    index = (PAGES / "README.md").read_text()
    assert [page.name for page in pages if page.name != "README.md" and f"]({page.name})" not in index] == []
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
    scripts = {page.name for page in SCRIPTS} | {"torchtitan", "megatron-lm", "README"}
    assert {page.stem for page in pages} == scripts, "a page that no test runs"


def test_python_of_pages_can_be_read_by_python() -> None:
    for page in PAGES.glob("*.md"):
        for block in blocks(page.stem, "python"):
            compile(block, page.name, "exec")
