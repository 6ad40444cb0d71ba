"""Calibration probes: `python -m headway.probe kappa`, `... throughput` and `... hardware`. They measure what the
scheduler otherwise assumes or learns slowly; the first two on the reference trainer's parts. Nothing calls them:
whoever wants the numbers pays for the run. They speak to no agent and write nothing but the files they are asked
for."""
