"""Right specifications, of which wrong ones are made (`hooks.py`). Between them they have every section that there is."""

RIGHT = [
    {"version": 1, "name": "one", "resources": {"gpus": 1}, "run": {"command": "true"}},
    {
        "version": 1, "name": "many", "project": "nlp", "priority": "high", "labels": {"exp": "a"},
        "resources": {
            "gpus": {"min": 1, "max": 4, "sizes": [1, 2, 4]}, "per_node": {"cpus": 1, "memory": "1GiB"},
            "nodes": {"exclude": ["node-2"]}, "topology": {"prefer": "rack"},
        },
        "training": {
            "model": "gpt2-124m", "precision": "bf16", "reference_batch": "64 sequences",
            "batch": {"min": "32 sequences", "max": "256 sequences"}, "lr_scaling": "sqrt", "target": "1M tokens",
            "layouts": {"tp": [1, 2], "pp": 1, "micro_batch": 8}, "reconfigure": {"batch": "live", "layout": "restart"},
            "checkpoint": {"every": "15m", "grace": "30s"}, "kappa": 1.0, "noise": "raw",
        },
        "elastic": {"min_runtime": "1m", "max_resizes_per_hour": 2, "max_overhead_pct": 3, "min_share": 0.5},
        "limits": {"time": "1h", "max_restarts": 2}, "deadline": "2099-12-24T18:00:00Z", "budget": {"gpu_hours": 5},
        "run": {"per": "gpu", "workdir": "/tmp", "command": ["true", "{python}"], "env": {"A": "b"}},
    },
    {
        "version": 1, "name": "sweep", "project": "nlp", "array": {"range": "0-3", "parallel": 2}, "after": [{"job": "short", "on": "any"}],
        "resources": {"gpus": 1, "nodes": {"include": ["node-1", "node-2"]}},
        "limits": {"time": "10m", "signal": "B:USR1@60s", "stall_after": "20m", "min_gpu_util": "10%/1h"},
        "notify": [{"webhook": "https://hooks.invalid/x", "on": ["failed", "finished"], "secret": "HF_TOKEN"}],
        "run": {
            "command": ["true"], "secrets": [{"name": "HF_TOKEN", "as": "env"}],
            "hooks": {"prolog": "true", "epilog": "true", "timeout": "10s"},
            "progress": {"source": "stdout", "regex": "step (?P<step>\\d+) loss (?P<loss>\\S+)", "rank": "last", "samples_per_step": 8},
        },
    },
    {
        "version": 1, "name": "labelled", "project": "nlp", "array": "1,3,5-9:2%1", "after": [{"job": "short"}],
        "resources": {"gpus": {"min": 1, "max": 2}, "nodes": {"labels": {"disk": "nvme"}}},
        "training": {
            "curve": {"1": 1.0, "2": 1.9}, "seq_len": 64, "reference_batch": "64 sequences",
            "batch": {"max": "128 sequences", "policy": "norm_test", "eta": 0.5}, "target": {"tokens": "1M tokens", "count": "raw"},
            "layouts": {"1": {"tp": 1}, "2": {"tp": 2}}, "checkpoint": {"dir": "/tmp/${JOB_NAME}/${JOB_ID}", "fenced": False},
            "progress": {"regex": "step=(?P<step>\\d+) of=(?P<consumed>\\d+)"},
        },
        "run": {"command": ["true"]},
    },
]
