"""Tries a training script for a few steps under a stand-in for the node's agent, and says what Headway can and cannot
do with it: `python -m headway.check`, docs/adapters/README.md."""
