#!/usr/bin/env python3
"""One workload twice: in virtual time, and through the real server on an emulated fleet with the same hidden truth.

Usage: cross-check.py HEADWAY [SPEED] [POLICY] [SEED] [HOURS]
HEADWAY is the binary, SPEED the cluster's seconds per second (60). Prints times from submission to end of both.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

headway = sys.argv[1]
speed = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
policy = sys.argv[3] if len(sys.argv) > 3 else "goodput"
seed = sys.argv[4] if len(sys.argv) > 4 else "1"
hours = sys.argv[5] if len(sys.argv) > 5 else "2"
nodes, port = "H100x8=2", 7810
# The server is on this machine, whatever the environment says of proxies.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def told(name, values):
    minutes = [value / 60 for value in values]
    mean = sum(minutes) / len(minutes)
    print(f"{name}: {len(values)} jobs, mean {mean:.1f} min, median {quantile(minutes, 0.5):.1f}, longest {max(minutes):.1f}")


def main(directory):
    runs, submissions = directory / "runs", directory / "submissions.jsonl"
    evaluate = [headway, "evaluate", "--hours", hours, "--load", "0.8", "--seeds", seed, "--nodes", nodes, "--world", "gentle"]
    evaluate += ["--failures", "0", "--fleet", "fleet", "--policies", policy, "--round-every", "60", "--out", str(runs)]
    subprocess.run([*evaluate, "--submissions", str(submissions)], check=True, stdout=subprocess.DEVNULL)
    virtual = json.loads((runs / "runs.jsonl").read_text().splitlines()[0])
    jobs = [json.loads(line) for line in submissions.read_text().splitlines()]
    data = directory / "data"
    up = [headway, "up", "--emulate", nodes, "--speed", str(speed), "--failures", "0", "--data-dir", str(data), "--stop-grace", "2"]
    up += ["--listen", f"127.0.0.1:{port}", "--agent-listen", f"127.0.0.1:{port + 1}"]
    log = open(directory / "up.log", "w")
    cluster = subprocess.Popen(up, stdout=log, stderr=subprocess.STDOUT)
    try:
        live = through_server(data / "secrets" / "admin.token", jobs)
    except Exception:
        print((directory / "up.log").read_text()[-2000:], file=sys.stderr)
        raise
    finally:
        cluster.send_signal(signal.SIGINT)
        cluster.wait()
    told("virtual", virtual["times"])
    told("live", live)
    print(f"load average: {os.getloadavg()[0]:.1f}, {speed:.0f} x")


def through_server(token_file, jobs):
    def call(path, body=None):
        headers = {"Authorization": f"Bearer {token_file.read_text().strip()}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1{path}", data=data, headers=headers)
        with direct.open(request, timeout=60) as reply:
            return json.load(reply)

    deadline = time.monotonic() + 60
    while True:
        try:
            if len(call("/nodes")["items"]) == 2:
                break
        except (OSError, KeyError):
            pass
        assert time.monotonic() < deadline, "the cluster did not come up"
        time.sleep(0.5)
    environment = {**os.environ, "HEADWAY_URL": f"http://127.0.0.1:{port}", "HEADWAY_TOKEN_FILE": str(token_file)}
    subprocess.run([headway, "policy", "set", f"objective={policy}"], check=True, env=environment, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, began + job["arrives_seconds"] / speed - time.monotonic()))
        call("/jobs", {"jobs": [job["specification"]]})
    while True:
        shown = call("/jobs?limit=500")["items"]
        if len(shown) == len(jobs) and all(job["state"] in ("succeeded", "failed", "cancelled") for job in shown):
            return [seconds(job["ended_at"]) - seconds(job["submitted_at"]) for job in shown]
        time.sleep(1.0)


def seconds(text):
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


with tempfile.TemporaryDirectory(prefix="cross-check-", dir="/var/tmp") as name:
    # The private Postgres may run as another user.
    os.chmod(name, 0o755)
    main(pathlib.Path(name))
