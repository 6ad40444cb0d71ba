"""Builds the worker's wheel (flit_core) and an index of packages (PEP 503) around it: nothing is downloaded, and the
same files give the same bytes. The server hands out both, so that `pip install` needs no other index. Run it in the
environment of scripts/wheel/requirements.txt.

usage: build-wheel.py DIRECTORY    # DIRECTORY/headway/headway-<version>-py3-none-any.whl and the pages
"""

import hashlib
import html
import os
import sys
import tomllib
from pathlib import Path

from flit_core import buildapi

WORKER = Path(__file__).resolve().parent.parent / "worker"


def page(links: list[tuple[str, str, str]]) -> str:
    anchors = "".join(f'<a href="{html.escape(to)}"{more}>{html.escape(text)}</a>\n' for text, to, more in links)
    head = '<head><meta charset="utf-8"><title>Packages</title></head>'
    return f'<!doctype html>\n<html lang="en">{head}<body>\n{anchors}</body></html>\n'


def main(directory: Path) -> None:
    home = directory.resolve() / "headway"
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("*.whl"):
        old.unlink()
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # of every file in it, whenever it was written
    os.chdir(WORKER)
    wheel = home / buildapi.build_wheel(home)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    project = tomllib.loads((WORKER / "pyproject.toml").read_text())["project"]
    needs = f' data-requires-python="{html.escape(project["requires-python"])}"'
    (home / "index.html").write_text(page([(wheel.name, f"{wheel.name}#sha256={digest}", needs)]))
    (directory / "index.html").write_text(page([("headway", "headway/", "")]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve())
