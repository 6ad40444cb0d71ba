"""Solves one instance with cvxpy and three of its solvers: peers.py INSTANCE GAP SECONDS. One JSON line per solver.

CPU seconds are those of `Problem.solve`, modelling included, as whoever uses cvxpy pays for both; the solver's own share
is named in the status.
"""

import json
import sys
import time
import warnings

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

warnings.filterwarnings("ignore")
path, gap, limit = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with open(path) as file:
    instance = json.load(file)
value, group, row, column, amount = [], [], [], [], []
for number, columns in enumerate(instance["groups"]):
    for one in columns:
        for used, much in one["uses"]:
            row.append(used)
            column.append(len(value))
            amount.append(much)
        value.append(one["value"] / 1e6)
        group.append(number)
size, capacity = len(value), np.array(instance["capacity"], dtype=float)
uses = sp.csr_matrix((amount, (row, column)), shape=(len(capacity), size))
once = sp.csr_matrix((np.ones(size), (group, range(size))), shape=(len(instance["groups"]), size))

peers = {
    "HIGHS": {"mip_rel_gap": gap, "time_limit": limit, "threads": 1},
    "CBC": {"allowablePercentageGap": gap * 100, "maximumSeconds": limit, "numberThreads": 1},
    "GLPK_MI": {"glpk": {"msg_lev": "GLP_MSG_OFF", "mip_gap": gap, "tm_lim": int(limit * 1000)}},
}
for name, options in peers.items():
    x = cp.Variable(size, boolean=True)
    problem = cp.Problem(cp.Maximize(np.array(value) @ x), [uses @ x <= capacity, once @ x == 1])
    begin = time.process_time()
    try:
        problem.solve(solver=name, **options)
        status = problem.status
    except Exception as error:  # a peer that fails is a result too
        status = f"failed: {type(error).__name__}"
    seconds = time.process_time() - begin
    found = x.value is not None and bool(np.all(uses @ np.round(x.value) <= capacity + 1e-6))
    objective = float(np.array(value) @ np.round(x.value)) if found else None
    own = getattr(problem.solver_stats, "solve_time", None) if problem.solver_stats else None
    status += f", solver's own wall {own:.2f} s" if own else ""
    print(json.dumps({"peer": name, "cpu_seconds": seconds, "objective": objective, "status": status}), flush=True)
