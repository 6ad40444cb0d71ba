#!/usr/bin/env python3
"""A toy simulator that lets Headway decide: jobs arrive, run at the goodput of what they were given, and end.

Standard library only. Shows the loop every caller needs: build a round, write one line, read one line, carry out.

    python3 client.py --headway ./headway --policy goodput --jobs 40
"""

import argparse
import json
import random
import subprocess

NODES = [
    {"gpu_type": "H100", "gpus_per_node": 8, "count": 3, "name": "h", "domain": "rack-1"},
    {"gpu_type": "A100", "gpus_per_node": 8, "count": 3, "name": "a", "domain": "rack-2"},
]
ROUND_SECONDS = 60.0
RESTART_SECONDS = 45.0


class Planner:
    """`headway plan solve --stream`: one round in, one plan out."""

    def __init__(self, headway, policy):
        command = [headway, "plan", "solve", "--stream"] + (["--policy", policy] if policy else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def solve(self, document):
        # allow_nan=False: better an exception here than a refused line.
        self.process.stdin.write(json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if "error" in reply:
            raise ValueError(reply["error"]["message"])
        return reply

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def arrivals(count, random_source):
    """Jobs with a goodput table each: H100s are faster, and more GPUs bring less and less."""
    moment = 0.0
    jobs = []
    for number in range(count):
        moment += random_source.expovariate(1 / 120.0)
        exponent = random_source.uniform(0.75, 0.95)
        advantage = random_source.uniform(1.5, 3.0)
        rows = [
            {"gpu_type": gpu_type, "gpus": gpus, "goodput": round(speed * gpus**exponent, 4), "label": f"dp{gpus}"}
            for gpu_type, speed in (("H100", advantage), ("A100", 1.0))
            for gpus in (1, 2, 4, 8, 16)
        ]
        work = random_source.lognormvariate(10.0, 0.8)
        jobs.append({"name": f"job-{number}", "arrives": moment, "rows": rows, "left": work, "had": 0.0,
                     "allocation": None, "paused": 0.0, "starts": 0, "changed": 0.0})
    return jobs


def document(number, now, live):
    return {
        "version": 1,
        "round": number,
        "nodes": NODES,
        "jobs": [
            {
                "name": job["name"],
                "goodput": job["rows"],
                "age_seconds": now - job["arrives"],
                "attained_gpu_seconds": job["had"],
                "restarts": max(job["starts"] - 1, 0),
                # Whoever leaves this out is taken to have just moved.
                "since_move_seconds": now - job["changed"] if job["allocation"] else None,
                "remaining": job["left"],
                "restart_seconds": RESTART_SECONDS,
                "allocation": job["allocation"],
            }
            for job in live
        ],
    }


def carry_out(job, decided, now):
    """A job whose GPUs change stands still for a restart."""
    given = decided["allocation"]
    if given and (not job["allocation"] or given["nodes"] != job["allocation"]["nodes"]):
        job["paused"] = RESTART_SECONDS
        job["starts"] += 1
        job["changed"] = now
    job["allocation"] = given


def advance(job, now):
    """One round's progress; the moment the job ends, if it does."""
    if not job["allocation"]:
        return None
    goodput = job["allocation"]["goodput"]
    running = max(ROUND_SECONDS - job["paused"], 0.0)
    job["had"] += job["allocation"]["gpus"] * ROUND_SECONDS
    if goodput * running >= job["left"]:
        return now + job["paused"] + job["left"] / goodput
    job["left"] -= goodput * running
    job["paused"] = max(job["paused"] - ROUND_SECONDS, 0.0)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headway", default="headway", help="the binary")
    parser.add_argument("--policy", help="goodput, sia, sia_simulated, pollux, pollux_layouts, least_attained, fifo_backfill, shortest_remaining, static")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    planner = Planner(arguments.headway, arguments.policy)
    waiting = arrivals(arguments.jobs, random.Random(arguments.seed))
    live, times, moves, now, number = [], [], 0, 0.0, 0
    while waiting or live:
        if number > 100_000:
            raise SystemExit(f"after {number} rounds {len(live)} jobs still run: nothing moves forward")
        live += [job for job in waiting if job["arrives"] <= now]
        waiting = [job for job in waiting if job["arrives"] > now]
        if live:
            reply = planner.solve(document(number, now, live))
            moves += len(reply["moves"])
            for job, decided in zip(live, reply["jobs"]):
                carry_out(job, decided, now)
            ends = {job["name"]: advance(job, now) for job in live}
            times += [ends[job["name"]] - job["arrives"] for job in live if ends[job["name"]] is not None]
            live = [job for job in live if ends[job["name"]] is None]
        now += ROUND_SECONDS
        number += 1
    if planner.close() != 0:
        raise SystemExit("the planner failed")
    mean = sum(times) / len(times) / 3600
    print(f"{len(times)} jobs done after {now / 3600:.1f} h, {number} rounds, {moves} moves; mean time {mean:.2f} h")


if __name__ == "__main__":
    main()
