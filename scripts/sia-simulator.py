#!/usr/bin/env python3
"""Headway's decisions inside the published simulator of Sia (SOSP'23), beside Sia's own.

Usage: sia-simulator.py SIMULATOR WORKLOAD.csv [--headway BINARY] [--policy P] [--prior] [--remaining] [--set KEY=JSON]... [--log FILE]
SIMULATOR is the folder `sia-simulator` of https://github.com/siasosp23/artifacts (commit aaf7a0d), as published. Without
--headway its own Sia decides, at the settings of its run_experiment.sh. With it, `plan solve --stream` gets the rows that Sia
would get, every round, and its answers are carried out. Prints one line of JSON.

    python3.11 -m venv venv && venv/bin/pip install numpy==1.26.4 pandas==1.5.3 scipy==1.10.1 cvxpy==1.3.2 cylp==0.94.1 autograd==1.5 psutil
    venv/bin/python scripts/sia-simulator.py artifacts/sia-simulator artifacts/sia-simulator/workloads/philly/workload-1.csv --headway ./headway
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter

ROUND_SECONDS = 60

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("simulator")
parser.add_argument("workload")
parser.add_argument("--headway", help="the binary; without it Sia's own code decides")
parser.add_argument("--policy", default="goodput", help="what `plan solve` decides by")
parser.add_argument("--prior", action="store_true", help="tell what one GPU of each type makes of a job that never ran")
parser.add_argument("--remaining", action="store_true", help="tell how much work is left")
parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a field of the document's policy")
parser.add_argument("--log", help="write each job's end, restarts and GPU-hours by type here")
arguments = parser.parse_args()
sys.path.insert(0, arguments.simulator)

import pandas  # noqa: E402
import simulator_config  # noqa: E402
from cluster import Cluster  # noqa: E402
from sia import ZERO_ALLOC_GAIN, SiaPolicy, get_restart_penalty  # noqa: E402


class Timed(SiaPolicy):
    """Sia as published; counts rounds and the processor's time of its program, without that of its goodput rows."""

    rounds, seconds = 0, 0.0

    def _SiaPolicy__solve_mip_rescaled(self, *inputs):
        begun = time.process_time()
        answer = super()._SiaPolicy__solve_mip_rescaled(*inputs)
        self.rounds, self.seconds = self.rounds + 1, self.seconds + time.process_time() - begun
        return answer


class Headway(SiaPolicy):
    """A Sia, since the simulator asks for one, whose every decision is Headway's."""

    rounds = 0

    def begin(self, jobs):
        self.jobs = {job.name: job for job in jobs}
        self.held = {}
        self.moved, self.began, self.waited, self.stopped = {}, {}, {}, {}
        self.policy = {"objective": arguments.policy} | {
            key: json.loads(value) for key, value in (setting.split("=", 1) for setting in arguments.set)
        }
        command = [arguments.headway, "plan", "solve", "--stream"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def seconds(self):
        """The planner's processor time; it has to have ended."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def rows(self, job):
        """What Sia's matrix holds: goodputs where a model is known or projected; of a job that never ran, the smallest size of each type."""
        if not any(job.speedup_fn.values()):
            first = job.cluster_throughputs if arguments.prior else dict.fromkeys(self.cluster_ordering, 1.0)
            return [{"gpu_type": kind, "gpus": job.scale_unit[kind], "goodput": float(first[kind])} for kind in self.cluster_ordering]
        most, rows = max(job.max_replicas.values()), []
        for kind in self.cluster_ordering:
            nodes, gpus = self.configs[kind]
            offered = gpus <= max(most, 1) * job.scale_unit[kind]
            goodputs = self._compute_goodputs_v2(job, kind, nodes[offered], gpus[offered])
            rows += [
                {"gpu_type": kind, "gpus": int(size), "nodes": int(count), "goodput": float(goodput)}
                for count, size, goodput in zip(nodes[offered], gpus[offered], goodputs)
                if goodput > ZERO_ALLOC_GAIN
            ]
        return rows

    def remaining(self, name, info):
        """Work to the end of the job's last epoch in examples at the first batch's efficiency, the unit of its goodput."""
        job = self.jobs[name]
        if not (arguments.prior or any(info.speedup_fn.values())):
            return None
        application = job.reference_app
        left = application.get_progress(job.completion_epoch + 1) - job.progress
        return max(float(left) * application.init_batch_size / job.calibration_factor, 1.0)

    def described(self, name, info, now):
        held = self.held.get(name)
        job = {
            "name": name,
            "goodput": self.rows(info),
            "age_seconds": info.age,
            "waited_seconds": self.waited.get(name, 0.0) if held else now - self.stopped.get(name, now - info.age),
            "restarts": info.num_restarts,
            "attained_gpu_seconds": info.attained_service,
            "restart_seconds": get_restart_penalty(name),
            # The rows already end at twice what the job ever ran on.
            "most_gpus": {kind: max(info.max_replicas.values()) for kind in self.cluster_ordering},
        }
        if held:
            # The simulator lets nobody be moved who is still restarting.
            job |= {"allocation": held, "ran_seconds": now - self.began[name], "since_move_seconds": now - self.moved[name],
                    "pinned": info.scaling_underway}
        if arguments.remaining and (left := self.remaining(name, info)):
            job["remaining"] = left
        return job

    def optimize(self, jobs, nodes, base_allocations):
        self.rounds += 1
        now = next(info.age + info.creation_timestamp for info in jobs.values())
        self.held = {name: held for name, held in self.held.items() if name in jobs}
        document = {
            "version": 1,
            "nodes": [{"gpu_type": kind, "gpus_per_node": self.cluster_ngpus_per_node[kind], "count": self.cluster_num_nodes[kind], "name": kind}
                      for kind in self.cluster_ordering],
            "jobs": [self.described(name, info, now) for name, info in jobs.items()],
            "policy": self.policy,
        }
        self.process.stdin.write(json.dumps(document, allow_nan=False) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if "error" in reply:
            raise ValueError(reply["error"])
        return {answer["name"]: self.carried_out(answer["name"], answer["allocation"], jobs, now) for answer in reply["jobs"]}

    def carried_out(self, name, given, jobs, now):
        """Remembers what the next document has to say, and puts it as the simulator does: a GPU type, and a node for each GPU."""
        held = self.held.get(name)
        if not given:
            if held:
                self.stopped[name] = now
                del self.held[name]
            return None, ()
        if not held:
            self.waited[name] = now - self.stopped.get(name, now - jobs[name].age)
            self.began[name] = now
        if not held or held["nodes"] != given["nodes"]:
            self.moved[name] = now
        self.held[name] = given
        kind = given["gpu_type"]
        return kind, sorted(int(node.removeprefix(f"{kind}-")) for node, gpus in given["nodes"].items() for _ in gpus)


def run():
    nodes, per_node = simulator_config.cluster_nnodes, simulator_config.cluster_ngpus_per_node
    per_node = {kind: per_node[kind] for kind in nodes}
    most = simulator_config.cluster_max_physical_nnodes
    policy = (Headway if arguments.headway else Timed)(
        p_fairness=-0.5, restart_penalty=30, lambda_a=0.01, lambda_n=1.1, project_throughputs=True, share_max_replicas=True)
    policy.populate_valid_configs(nodes, per_node, most)
    cluster = Cluster(pandas.read_csv(arguments.workload), policy, nodes, per_node, max_physical_nodes=most)
    # Its log of every job in every round is for other scripts, and grows with the square of the time.
    cluster.step_log = lambda: None
    if arguments.headway:
        policy.begin(cluster.jobs)
    by_type = {job.name: Counter() for job in cluster.jobs}
    while not cluster.all_complete():
        before = {job.name: job.attained_service for job in cluster.jobs}
        where = {job.name: job.current_cluster for job in cluster.jobs}
        cluster.step(ROUND_SECONDS)
        for job in cluster.jobs:
            by_type[job.name][where[job.name]] += (job.attained_service - before[job.name]) / 3600
    if arguments.headway:
        policy.end()
    return cluster.jobs, policy, by_type


with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    jobs, policy, by_type = run()
times = sorted((job.completion_time - job.submission_time) / 3600 for job in jobs)
print(json.dumps({
    "workload": arguments.workload, "jobs": len(jobs), "rounds": policy.rounds,
    "mean_hours": sum(times) / len(times), "p99_hours": times[int(0.99 * len(times))],
    "restarts_per_job": sum(job.num_restarts for job in jobs) / len(jobs),
    "gpu_hours": sum(job.attained_service for job in jobs) / 3600,
    "makespan_hours": (max(job.completion_time for job in jobs) - min(job.submission_time for job in jobs)) / 3600,
    "cpu_ms_per_round": 1000 * policy.seconds / policy.rounds,
}))
if arguments.log:
    with open(arguments.log, "w") as log:
        for job in jobs:
            hours = {kind: used for kind, used in by_type[job.name].items() if kind}
            log.write(json.dumps({"name": job.name, "submitted": job.submission_time, "ended": job.completion_time,
                                  "restarts": job.num_restarts, "gpu_hours": hours}) + "\n")
