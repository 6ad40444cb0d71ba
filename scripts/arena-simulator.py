#!/usr/bin/env python3
"""Headway's decisions inside the published simulator of Arena (EuroSys'26), beside Arena's own and its baselines.

Usage: arena-simulator.py ARENA [--headway BINARY] [--policy P] [--remaining] [--set KEY=JSON]...
           [--trace philly|helios|pai] [--every N] [--nodes TYPE=COUNT,...] [--rounds N] [--keep-progress] [--log FILE]
ARENA is a checkout of https://github.com/sjtu-epcc/arena, branch `ae-eurosys` (commit 87b09e9), as published. Without
--headway its own scheduler decides (`--policy crius`, which is Arena, or fcfs, elasticflow-l, gavel, sia), with the settings of
its README.md. With it, `plan solve --stream` gets the measured table that Arena's scheduler looks things up in, every round, and
its answers are carried out. Runs until every job has ended, or for N rounds. Prints one line of JSON.

    python3.11 -m venv venv && venv/bin/pip install numpy==1.26.4 pandas==2.3.3 orjson==3.13.0 matplotlib==3.11.2 statsmodels==0.15.0 cvxpy==1.7.5 cvxopt==1.3.3
    # and cplex==22.2.0.1 for gavel, which asks for no other solver
    venv/bin/python scripts/arena-simulator.py arena --trace pai --nodes a100=3,v100=1,a40=8,a10=8 --headway ./headway
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections import Counter

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("arena")
parser.add_argument("--headway", type=os.path.abspath, help="the binary; without it Arena's own code decides")
parser.add_argument("--policy", help="what decides: crius of Arena's by default, goodput of Headway's")
parser.add_argument("--remaining", action="store_true", help="tell Headway how much work is left")
parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a field of the document's policy")
parser.add_argument("--trace", default="pai", choices=["philly", "helios", "pai"])
parser.add_argument("--every", type=int, default=1, help="take each Nth job of the trace")
parser.add_argument("--nodes", help="a100=80,v100=20,a40=160,a10=160 as published")
parser.add_argument("--rounds", type=int, default=0, help="stop after so many, ended jobs or not; 2000 for philly as published")
parser.add_argument("--keep-progress", action="store_true", help="what was done stays done, and changes of GPUs cost time (`kept` below)")
parser.add_argument("--log", type=os.path.abspath, help="write each job's end, restarts and GPU-hours, and each change, here")
arguments = parser.parse_args()
arguments.policy = arguments.policy or ("goodput" if arguments.headway else "crius")
# Arena reads its tables from where it is started.
os.chdir(arguments.arena)
sys.path.insert(0, os.getcwd())
warnings.simplefilter("ignore")

import simulator  # noqa: E402
from db_querier import QueryConfigs  # noqa: E402
from job.job import Job  # noqa: E402
from macro import macro_def as constants  # noqa: E402
from resources.hardware_specs import NODE_CAPACITY  # noqa: E402
from scheduler import AblationOptions, Scheduler  # noqa: E402

ROUND_SECONDS = constants.SCHEDULING_INTERVAL


class Stuck(Exception):
    """Nothing runs, nothing is left to come, and what waits will never start."""


def retuning_seconds(gpus):
    """How long the simulator says that a change of GPUs stops a job: Arena's pruned search, and that of its baselines."""
    if arguments.headway or arguments.policy.startswith("crius"):
        return min(constants.RESCHED_OVERHEAD_WITH_PRUNE * gpus, constants.MAX_RESCHED_OVERHEAD_WITH_PRUNE)
    return min(constants.RESCHED_OVERHEAD_WITHOUT_PRUNE * gpus, constants.MAX_RESCHED_OVERHEAD_WITHOUT_PRUNE)


def held_by(job):
    return {node: sorted(gpus) for node, gpus in job.resource_alloc.node_to_gpu_table.items()}


class Watch:
    """Sees what a scheduler of theirs does: who ends when, who changes GPUs, what is used."""

    def __init__(self, scheduler, last_arrival):
        self.scheduler, self.last_arrival = scheduler, last_arrival
        self.rounds, self.seconds, self.idle_rounds = 0, 0.0, 0
        self.submitted, self.ended, self.held, self.shape = {}, {}, {}, {}
        self.restarts, self.used, self.changes = Counter(), Counter(), []
        self.decide, self.finished, self.performance = scheduler.schedule, scheduler._get_end_job_metrics, scheduler._get_cluster_perf
        scheduler.schedule, scheduler._get_end_job_metrics, scheduler._get_cluster_perf = self.schedule, self.ends, self.perform

    def ends(self):
        for job in self.scheduler.ended_job_queue:
            self.ended[job.uuid] = self.scheduler.global_timer - job.sub_time
            self.held.pop(job.uuid, None)
        return self.finished()

    def perform(self, *inputs):
        answer = self.performance(*inputs)
        if arguments.keep_progress:
            self.scheduler.resched_time_debt_table.clear()
        return answer

    def schedule(self):
        scheduler = self.scheduler
        self.submitted |= {job.uuid: job for job in scheduler.submit_init_job_queue}
        begun, now = time.process_time(), scheduler.global_timer
        answer = self.decide()
        self.rounds, self.seconds = self.rounds + 1, self.seconds + time.process_time() - begun
        held = {job.uuid: held_by(job) for job in scheduler.running_job_queue}
        for job in scheduler.running_job_queue:
            self.used[job.uuid] += ROUND_SECONDS * job.resource_quota.gpu_num / 3600
            shape = [job.resource_quota.gpu_type, job.resource_quota.gpu_num, len(job.resource_quota.locality)]
            if self.held.get(job.uuid) != held[job.uuid]:
                job.stalled_seconds = retuning_seconds(job.resource_quota.gpu_num)
                before = self.shape.get(job.uuid)
                self.restarts[job.uuid] += before is not None
                self.changes.append({"at": now, "job": job.alias, "from": before, "to": shape, "ran": job.uuid in self.held})
            self.shape[job.uuid] = shape
        self.held = held
        self.idle_rounds = 0 if held or now < self.last_arrival else self.idle_rounds + 1
        if self.idle_rounds > 10:
            raise Stuck
        return answer


class Headway(Scheduler):
    """A scheduler of theirs whose every decision is Headway's."""

    def begin(self):
        pool = self.resource_interface.node_pool
        self.kinds = list(self.resource_interface.get_gtype_num_table())
        self.nodes = {f"{kind}-{index}": node for kind in self.kinds
                      for index, node in enumerate(node for node in pool.values() if node.gpu_type == kind)}
        self.counts = Counter(node.gpu_type for node in pool.values())
        self.known, self.allocations, self.moved, self.began, self.waited, self.stopped = {}, {}, {}, {}, {}, {}
        self.moves, self.attained, self.restarts = Counter(), Counter(), Counter()
        self.settings = {"objective": arguments.policy} | {
            key: json.loads(value) for key, value in (setting.split("=", 1) for setting in arguments.set)
        }
        command = [arguments.headway, "plan", "solve", "--stream"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def planner_seconds(self):
        """The planner's processor time."""
        self.process.stdin.close()
        self.process.wait()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def rows(self, job):
        """Samples per second of every allocation that Arena's scheduler could look up, best and relaxed locality."""
        key = (job.model_name, job.batch_size)
        if key not in self.known:
            model, size = job.model_name.split("__")
            self.known[key] = [
                {"gpu_type": kind, "gpus": gpus, "nodes": hosts, "goodput": float(rate)}
                for kind in self.kinds for gpus in constants.SUPPORTED_GPU_NUM_LIST
                for hosts in constants.SUPPORTED_GPU_NUM_LIST
                if hosts <= min(gpus, self.counts[kind]) and gpus // hosts <= NODE_CAPACITY[kind]
                for feasible, rate, _ in [self.db_querier.query_db(
                    QueryConfigs(hosts, gpus // hosts, kind, model, size, job.batch_size, only_opt=True), True)]
                if feasible
            ]
        return self.known[key]

    def described(self, job, now):
        name, held = job.uuid, self.allocations.get(job.uuid)
        age = now - job.sub_time
        told = {
            "name": name,
            "goodput": self.rows(job),
            "age_seconds": age,
            "waited_seconds": self.waited.get(name, 0) if held else now - self.stopped.get(name, job.sub_time),
            "restarts": self.restarts[name],
            "attained_gpu_seconds": self.attained[name],
            "restart_seconds": constants.MAX_RESCHED_OVERHEAD_WITH_PRUNE,
        }
        if held:
            told |= {"allocation": held, "ran_seconds": now - self.began[name], "since_move_seconds": now - self.moved[name]}
        if arguments.remaining:
            told["remaining"] = max(float(job.remained_iter_num * job.batch_size), 1.0)
        return told

    def schedule(self):
        self._update_and_check_end()
        spans, times, queued = self._get_end_job_metrics()
        before = self.resource_interface.get_crs_table()
        if self.ended_job_queue:
            for name in self._release_resources_and_update_decision_queue():
                self.allocations.pop(name)
            self.ended_job_queue.clear()
        for job in self._sort_jobs(self.submit_init_job_queue):
            job.update_status(constants.JOB_PENDING_STATUS)
            self.pending_job_queue.append(job)
        self.submit_init_job_queue.clear()
        if jobs := self.running_job_queue + self.pending_job_queue:
            self.carry_out(self.solved(jobs), {job.uuid: job for job in jobs})
        self._update_timer()
        self._update_queue_time_table()
        self._update_executed_time_table()
        changed = self._parse_crs_table_change(before, self.resource_interface.get_crs_table(), quiet_mode=True)
        self.resched_num_table = dict(Counter(self.resched_num_table) + Counter(changed))
        for job in self.running_job_queue:
            self.attained[job.uuid] += ROUND_SECONDS * job.resource_quota.gpu_num
        return self._get_cluster_perf(spans, times, queued, changed)

    def solved(self, jobs):
        document = {
            "version": 1,
            "nodes": [{"gpu_type": kind, "gpus_per_node": NODE_CAPACITY[kind], "count": self.counts[kind], "name": kind} for kind in self.kinds],
            "jobs": [self.described(job, self.global_timer) for job in jobs],
            "policy": self.settings,
        }
        self.process.stdin.write(json.dumps(document, allow_nan=False) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if "error" in reply:
            raise ValueError(reply["error"])
        self.moves.update(move["kind"] for move in reply["moves"])
        return reply

    def carry_out(self, reply, jobs):
        """Remembers what the next document has to say, and colours each GPU with its job as the simulator does."""
        table, now = self.resource_interface.get_crs_table(), self.global_timer
        for gpus in table.values():
            for gpu in gpus.values():
                gpu |= {"status": constants.IDLE_STATUS, "used_job_id": constants.EMPTY_JOB_ID}
        for answer in reply["jobs"]:
            job, given = jobs[answer["name"]], answer["allocation"]
            self.remember(job, given, now)
            for name, indices in (given or {"nodes": {}})["nodes"].items():
                node = self.nodes[name]
                for index in indices:
                    table[node.uuid][node.gpu_list[index].uuid] |= {"status": constants.USED_STATUS, "used_job_id": job.uuid}
        self.resource_interface.apply_sched(table)
        self._update_run_jobs(table)

    def remember(self, job, given, now):
        name, held = job.uuid, self.allocations.get(job.uuid)
        if not given:
            if held:
                # Not by their _suspend_one_job: it takes the time run so far off the work that is left, again at each stop.
                self.stopped[name], job.resource_alloc = now, None
                job.update_status(constants.JOB_PENDING_STATUS)
                self.running_job_queue.remove(job)
                self.pending_job_queue.append(job)
                del self.allocations[name]
                self.restarts[name] += 1
            return
        if not held:
            self.waited[name], self.began[name] = now - self.stopped.get(name, job.sub_time), now
            job.update_status(constants.JOB_RUNNING_STATUS)
            self.pending_job_queue.remove(job)
            self.running_job_queue.append(job)
        elif held["nodes"] != given["nodes"]:
            self.restarts[name] += 1
        if not held or held["nodes"] != given["nodes"]:
            self.moved[name] = now
        self.allocations[name] = given


def kept(job, seconds, iteration_seconds):
    """What each interval did at the pace of that interval, less what the change of GPUs took.

    As published, all the time that a job ever ran counts at its present pace, so that growth is had for the past as well and
    a smaller size undoes work; a stop takes the time run so far off what is left once more; and a change costs Arena nothing.
    """
    stalled = min(getattr(job, "stalled_seconds", 0), seconds)
    job.stalled_seconds = getattr(job, "stalled_seconds", 0) - stalled
    job.exec_time += seconds
    job.remained_iter_num -= (seconds - stalled) / iteration_seconds


def run():
    if arguments.nodes:
        asked = (kind.split("=") for kind in arguments.nodes.split(","))
        cluster = [{kind: {"node_num": int(count)} for kind, count in asked}]
        simulator.read_json_content = lambda json_path: cluster
    if arguments.keep_progress:
        Job.update_remained_iter_num = kept
    theirs = "crius" if arguments.headway else arguments.policy
    world = simulator.Simulator(policy=theirs, trace_type=arguments.trace, enable_alpa=True, sched_with_opt=theirs == "crius")
    arrivals = world._load_trace()
    numbered = {event.job_id: number for number, event in enumerate(event for chunk in arrivals for event in chunk)}
    taken = [[event for event in chunk if numbered[event.job_id] % arguments.every == 0] for chunk in arrivals]
    world._load_trace = lambda **_: taken
    if arguments.headway:
        world.scheduler = Headway(world.scheduler.resource_interface.node_pool, world.scheduler.supported_gpu_types,
                                  AblationOptions(), sched_with_opt=True)
        world.scheduler.begin()
    last = taken[0][0].sub_time + len(taken) * ROUND_SECONDS
    watch = Watch(world.scheduler, last)
    with contextlib.suppress(Stuck):
        world.simulate(no_res_stored=True, max_sched_round=arguments.rounds, runout=not arguments.rounds)
    return watch, world.scheduler


def main():
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        watch, scheduler = run()
    times = sorted(seconds / 3600 for seconds in watch.ended.values())
    jobs = watch.submitted.values()
    so_far = [watch.ended.get(job.uuid, scheduler.global_timer - job.sub_time) / 3600 for job in jobs]
    ends = [job.sub_time + watch.ended[job.uuid] for job in jobs if job.uuid in watch.ended]
    seconds = scheduler.planner_seconds if arguments.headway else watch.seconds
    print(json.dumps({
        "trace": arguments.trace, "every": arguments.every,
        "gpus": sum(node.capacity for node in scheduler.resource_interface.node_pool.values()),
        "by": ("headway " if arguments.headway else "") + arguments.policy, "keep_progress": arguments.keep_progress,
        "remaining": arguments.remaining, "set": arguments.set, "jobs": len(jobs), "ended": len(times), "rounds": watch.rounds,
        "mean_hours": sum(times) / len(times), "mean_so_far_hours": sum(so_far) / len(jobs), "median_hours": times[len(times) // 2], "p99_hours": times[int(0.99 * len(times))],
        "longest_hours": times[-1], "makespan_hours": (max(ends) - min(job.sub_time for job in jobs)) / 3600,
        "restarts_per_job": sum(watch.restarts.values()) / len(jobs),
        "rescheduled_as_counted": sum(scheduler.resched_num_table.values()) / len(jobs),
        "gpu_hours": sum(watch.used.values()), "cpu_ms_per_round": 1000 * seconds / watch.rounds,
        "moves": dict(getattr(scheduler, "moves", {})),
    }))
    if arguments.log:
        with open(arguments.log, "w") as log:
            for job, hours in zip(jobs, so_far):
                log.write(json.dumps({"job": job.alias, "ended": job.uuid in watch.ended, "hours": hours,
                                      "restarts": watch.restarts[job.uuid], "gpu_hours": watch.used[job.uuid]}) + "\n")
            for change in watch.changes:
                log.write(json.dumps(change) + "\n")


main()
