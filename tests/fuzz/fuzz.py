"""Holds a living cluster's REST API to its own document: thousands of right and wrong requests, none of which may end in an error of the
server's or in a reply that the document does not tell of. Afterwards the scheduler answers as before and has logged no error.

usage: fuzz.py [--per-operation N] [--seed S] [--binary PATH]
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from specifications import RIGHT

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent


class Cluster:
    """`headway up` in a directory of its own, with an admin's token."""

    def __init__(self, binary):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="hwz", dir="/tmp"))
        people, agents = free_port(), free_port()
        self.url = f"http://127.0.0.1:{people}"
        arguments = ["up", "--data-dir", self.directory, "--listen", f"127.0.0.1:{people}"]
        arguments += ["--agent-listen", f"127.0.0.1:{agents}", "--nodes", "2", "--gpus-per-node", "4"]
        self.log = open(self.directory / "up.log", "w", encoding="utf-8")
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self.directory), "RUST_LOG": "warn"}
        self.process = subprocess.Popen([binary, *arguments], stdout=self.log, stderr=self.log, env=environment)
        while "Headway is up" not in self.said():
            if self.process.poll() is not None:
                raise SystemExit(f"headway up ended:\n{self.said()}")
            time.sleep(0.1)
        self.token = (self.directory / "secrets/admin.token").read_text().strip()

    def said(self):
        return (self.directory / "up.log").read_text(errors="replace")

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                text = reply.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as refused:
            raise SystemExit(f"{method} {path}: {refused.code} {refused.read().decode()}") from refused

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.log.close()


def free_port():
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


SECRETS = ["HF_TOKEN", "hook-key"]


def job(name, gpus, command, **more):
    return {"version": 1, "name": name, "resources": {"gpus": gpus}, "run": {"command": command}, **more}


def inhabited(cluster):
    """Gives the cluster something to ask about; what there is, by the parameter that names it."""
    for project in ("nlp", "vision"):
        cluster.ask("PUT", f"/projects/{project}", {})
    for user in ("ada", "bob"):
        cluster.ask("PUT", f"/users/{user}", {"role": "user"})
    specifications = [
        job("long", {"min": 1, "max": 4}, ["sleep", "3600"], project="nlp",
            training={"model": "gpt2-124m", "reference_batch": "64 sequences"}),
        job("short", 1, ["true"], project="nlp"),
        job("broken", 1, ["false"], project="vision", limits={"max_restarts": 0}),
        job("waiting", 8, ["sleep", "3600"], project="vision"),
        job("held", 1, ["sleep", "3600"]),
    ]
    jobs = [cluster.ask("POST", "/jobs", one)["jobs"][0]["id"] for one in specifications]
    cluster.ask("POST", f"/jobs/{jobs[-1]}/hold", {})
    deadline = time.monotonic() + 60
    while cluster.ask("GET", "/jobs?state=failed&limit=1")["items"] == [] and time.monotonic() < deadline:
        time.sleep(0.2)
    cluster.ask("PATCH", "/nodes/node-1", {"labels": {"disk": "nvme"}})
    for name in SECRETS:
        cluster.ask("PUT", f"/secrets/{name}", {"value": "hunter22"})
    sweeps = [job(name, 1, ["sleep", "3600"], project="nlp", array="0-2%1") for name in ("sweep", "other-sweep")]
    arrays = [cluster.ask("POST", "/jobs", one)["jobs"][0]["array"]["array_id"] for one in sweeps]
    cluster.ask("POST", f"/arrays/{arrays[-1]}/hold", {})
    spans = [("spare", 2099, {"users": ["ada"]}), ("psu-swap", 2098, {"maintenance": True}), ("exam", 2097, {"projects": ["nlp"]})]
    reservations = [
        cluster.ask("POST", "/reservations", {"name": name, "nodes": ["node-2"], "from": f"{year}-01-01T00:00:00Z", "duration_seconds": 3600, **whom})["id"]
        for name, year, whom in spans
    ]
    tokens = [cluster.ask("POST", "/auth/tokens", {"name": f"ci-{number}", "user": "ada", "scope": "user"})["token"]["id"] for number in range(4)]
    plans = [plan["id"] for plan in cluster.ask("GET", "/plans?limit=20")["items"]]
    return {
        r"^/api/v1/jobs/": {"path.id": jobs},
        r"^/api/v1/arrays/": {"path.id": arrays},
        r"^/api/v1/reservations/": {"path.id": reservations},
        r"^/api/v1/auth/tokens/": {"path.id": tokens},
        r"^/api/v1/secrets/": {"path.secret": SECRETS},
        r"^/api/v1/plans/\{id\}": {"path.id": plans},
        r"^/api/v1/nodes/": {"path.node": ["node-1", "node-2"]},
        r"^/api/v1/projects/": {"path.project": ["nlp", "vision"], "path.user": ["ada", "bob"]},
        r"^/api/v1/users/": {"path.user": ["ada", "bob"]},
        r"^/api/v1/events/": {"path.id": list(range(1, 40))},
        r"^/api/v1/(timeline|stream|queue|events|usage|jobs)$": {
            "query.job": jobs, "query.project": ["nlp", "vision"], "query.node": ["node-1", "node-2"],
            "query.fields": ["id,name", "id,state,priority,waiting"], "query.sort": ["name", "-submitted"]},
    }


def configuration(known):
    """Of Schemathesis: what is always so, and what there is to name in this cluster."""
    text = (HERE / "schemathesis.toml").read_text()
    operations = []
    for index, (paths, parameters) in enumerate(known.items()):
        named = {parameter: f"{parameter.partition('.')[2]}s-{index}" for parameter in parameters}
        text += "".join(f"\n[dictionaries.{named[one]}]\nvalues = {json.dumps(values)}\n" for one, values in parameters.items())
        bound = [f'{json.dumps(one)} = {{ dictionary = "{named[one]}", probability = 0.7 }}\n' for one in parameters]
        operations.append(f"\n[[operations]]\ninclude-path-regex = {json.dumps(paths)}\n[operations.parameters]\n" + "".join(bound))
    return text + "".join(operations)


def calls(report):
    """How many requests were made, by status."""
    statuses = {}
    for line in report.read_text().splitlines():
        for status in re.findall(r'"status_code":\s*(\d+)', line):
            statuses[status] = statuses.get(status, 0) + 1
    return statuses


def complaints(cluster):
    """What the cluster logged that it should not have, however it is asked."""
    logs = [cluster.directory / "up.log", *cluster.directory.glob("logs/*.log")]
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return [line for line in lines if re.search(r"\bERROR\b|panicked", line)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-operation", type=int, default=20, metavar="N", help="requests per operation and phase, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default="fuzzing")
    parser.add_argument("--binary", default=os.environ.get("HEADWAY_BINARY", ROOT / "target/debug/headway"))
    options = parser.parse_args()
    cluster = Cluster(options.binary)
    try:
        own = [token["id"] for token in cluster.ask("GET", "/auth/tokens")["items"]]
        known = inhabited(cluster)
        # One that is refused would make nothing but refusals.
        cluster.ask("POST", "/jobs/validate", {"jobs": RIGHT})
        for module in ("hooks.py", "specifications.py"):
            shutil.copy(HERE / module, cluster.directory)
        (cluster.directory / "schemathesis.toml").write_text(configuration(known))
        report = cluster.directory / "calls.ndjson"
        command = [
            *(pathlib.Path(sys.executable).parent / "st", "--config-file", cluster.directory / "schemathesis.toml"),
            *("run", f"{cluster.url}/api/v1/openapi.json", "--phases", options.phases, "--seed", options.seed),
            *("--max-examples", options.per_operation, "--workers", 2, "--header", f"Authorization: Bearer {cluster.token}"),
            # A stream that is let in says nothing until something happens; the scheduler's own tests hold it to the document.
            *("--exclude-operation-id", "stream"),
            *("--report", "ndjson", "--report-ndjson-path", report, "--no-color"),
        ]
        nodes = [name for node in cluster.ask("GET", "/nodes")["items"] for name in (node["id"], node["name"])]
        told = {"FUZZ_OWN_TOKENS": json.dumps(own), "FUZZ_NODES": json.dumps(nodes)}
        environment = {**os.environ, **told, "PYTHONPATH": str(cluster.directory)}
        status = subprocess.run([str(part) for part in command], cwd=cluster.directory, env=environment).returncode
        statuses = calls(report)
        wrong = complaints(cluster)
        cluster.ask("GET", "/overview")
    finally:
        cluster.stop()
    total = sum(statuses.values())
    print(f"{total} requests: " + ", ".join(f"{count} of {status}" for status, count in sorted(statuses.items())))
    if wrong:
        raise SystemExit("the cluster logged what it should not have:\n" + "\n".join(wrong[:20]))
    if status != 0:
        raise SystemExit(f"replies that the document does not tell of; what was asked is in {cluster.directory}")
    shutil.rmtree(cluster.directory)


if __name__ == "__main__":
    main()
