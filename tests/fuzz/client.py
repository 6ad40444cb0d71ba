"""Holds the OpenAPI document to the specification, generates a client from it, and calls every GET of a living cluster with that client.

usage: client.py [--binary PATH]
"""

import argparse
import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

import openapi_spec_validator
from fuzz import ROOT, Cluster, inhabited

# The generator knows neither media type. What it makes of a line of JSON is a text.
CONFIGURATION = """\
content_type_overrides:
  application/yaml: application/octet-stream
  application/x-ndjson: text/plain
  text/csv: text/plain
post_hooks: []
"""
# A stream has no end, and lines of JSON are no JSON document: the generator reads the whole reply as one.
LEFT_OUT = {"stream", "export_audit"}
# Without an identity provider there is nobody to send a browser to.
REFUSED = {"oidc_login": 404, "oidc_callback": 404}
# Where the generated function needs more than its path names.
QUERIES = {"oidc_callback": {"code": "x", "state": "x"}}


def generate(document, directory):
    """Generates the client, which must have every operation of the document."""
    (directory / "document.json").write_text(json.dumps(document))
    (directory / "generator.yaml").write_text(CONFIGURATION)
    generator = pathlib.Path(sys.executable).parent / "openapi-python-client"
    command = [generator, "generate", "--path", directory / "document.json", "--config", directory / "generator.yaml"]
    command += ["--output-path", directory / "headway_client", "--meta", "none", "--fail-on-warning"]
    made = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if made.returncode != 0:
        raise SystemExit(f"no client can be generated:\n{made.stdout}{made.stderr}")
    sys.path.insert(0, str(directory))


def function_of(tag, operation):
    """The module that the generator has made of an operation."""
    # A word of the language's own is followed by an underscore.
    for name in (operation, f"{operation}_"):
        try:
            return importlib.import_module(f"headway_client.api.{tag}.{name}")
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"the generated client lacks {operation}")


def arguments(path, parameters, known):
    """A value for each parameter of a path, of things that the cluster has."""
    values = {}
    for one in parameters:
        if one["in"] != "path":
            continue
        place = f"path.{one['name']}"
        found = next((by[place] for pattern, by in known.items() if re.search(pattern, path) and place in by), None)
        if not found:
            raise SystemExit(f"{path}: nothing is known to put in place of {one['name']}")
        is_uuid = one["schema"].get("format") == "uuid"
        values[one["name"]] = uuid.UUID(found[0]) if is_uuid else found[0]
    return values


def call_all(document, cluster, known):
    """Calls every GET; what the client cannot read, or what is refused unexpectedly."""
    from headway_client import AuthenticatedClient
    from headway_client.models.problem import Problem

    client = AuthenticatedClient(base_url=cluster.url, token=cluster.token, timeout=30)
    called, wrong = 0, []
    for path, item in document["paths"].items():
        operation = item.get("get")
        if operation is None or operation["operationId"] in LEFT_OUT:
            continue
        name = operation["operationId"]
        values = arguments(path, operation.get("parameters", []), known) | QUERIES.get(name, {})
        call = function_of(operation["tags"][0], name).sync_detailed
        # A name that is in the path and in the query has its place behind it.
        taken = inspect.signature(call).parameters
        values = {one if one in taken else f"{one}_path": value for one, value in values.items()}
        if name == "plan_diff":
            # The first plan was made from no other.
            values["against"] = values["id"]
        try:
            reply = call(client=client, **values)
        except Exception as error:  # Whatever a generated parser raises is what this test is for.
            wrong.append(f"{name}: {type(error).__name__}: {error}")
            continue
        called += 1
        expected = REFUSED.get(name, 200)
        is_problem = isinstance(reply.parsed, Problem)
        if reply.status_code != expected or reply.parsed is None or is_problem != (expected >= 400):
            wrong.append(f"{name}: {reply.status_code}: {reply.content[:300]!r}")
    return called, wrong


def submit_and_cancel(specification, cluster):
    """Submits a job by the generated types, and cancels it."""
    from headway_client import AuthenticatedClient
    from headway_client.api.jobs import cancel_job, submit
    from headway_client.models.cancel_request import CancelRequest
    from headway_client.models.job_specification import JobSpecification

    client = AuthenticatedClient(base_url=cluster.url, token=cluster.token, timeout=30)
    submitted = submit.sync(client=client, body=JobSpecification.from_dict(specification))
    cancelled = cancel_job.sync(client=client, id=submitted.jobs[0].id, body=CancelRequest(reason="a test"))
    return cancelled.name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.environ.get("HEADWAY_BINARY", ROOT / "target/debug/headway"))
    options = parser.parse_args()
    document = json.loads((ROOT / "api/openapi.json").read_text())
    openapi_spec_validator.validate(document)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="headway-client-"))
    began = time.monotonic()
    generate(document, directory)
    cluster = Cluster(options.binary)
    try:
        known = inhabited(cluster)
        called, wrong = call_all(document, cluster, known)
        specification = {"version": 1, "name": "generated", "resources": {"gpus": {"min": 1, "max": 1}}, "run": {"command": ["sleep", "600"]}}
        if submit_and_cancel(specification, cluster) != "generated":
            wrong.append("submit: another job came back")
    finally:
        cluster.stop()
    if wrong:
        raise SystemExit(f"a generated client cannot use {len(wrong)} operations:\n" + "\n".join(wrong))
    for made in (directory, cluster.directory):
        shutil.rmtree(made)
    print(f"the document is valid; a generated client has called {called} GETs in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
