"""Builds the worker's wheel and an index of packages (PEP 503) around it, from the files of this repository alone:
nothing is downloaded, and the same files give the same bytes. The server hands out both, so that `pip install` needs no
other index.

usage: build-wheel.py DIRECTORY    # DIRECTORY/headway/headway-<version>-py3-none-any.whl and the pages
"""

import base64
import hashlib
import html
import sys
import tomllib
import zipfile
from pathlib import Path

WORKER = Path(__file__).resolve().parent.parent / "worker"
# The earliest that a zip can say.
EPOCH = (1980, 1, 1, 0, 0, 0)


def version() -> str:
    scope: dict[str, str] = {}
    exec((WORKER / "src" / "headway" / "version.py").read_text(), scope)
    return scope["__version__"]


def metadata(project: dict) -> str:
    """https://packaging.python.org/en/latest/specifications/core-metadata/, version 2.4."""
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", project["name"]),
        ("Version", version()),
        ("Summary", project["description"]),
        ("License-Expression", project["license"]),
        *(("License-File", name) for name in project["license-files"]),
        *(("Classifier", each) for each in project["classifiers"]),
        ("Requires-Python", project["requires-python"]),
        *(("Requires-Dist", each) for each in project["dependencies"]),
    ]
    for extra, wanted in project["optional-dependencies"].items():
        fields.append(("Provides-Extra", extra))
        fields += [("Requires-Dist", f'{each}; extra == "{extra}"') for each in wanted]
    fields.append(("Description-Content-Type", "text/markdown"))
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + (WORKER / project["readme"]).read_text()


def contents(project: dict) -> dict[str, bytes]:
    """Every file of the wheel but its record."""
    sources = WORKER / "src"
    paths = [path for path in sources.rglob("*") if path.suffix == ".py" or path.name == "py.typed"]
    files = {path.relative_to(sources).as_posix(): path.read_bytes() for path in sorted(paths)}
    information = f"headway-{version()}.dist-info"
    for name in project["license-files"]:
        files[f"{information}/licenses/{name}"] = (WORKER / name).read_bytes()
    files[f"{information}/METADATA"] = metadata(project).encode()
    files[f"{information}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: headway\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    return files


def record(files: dict[str, bytes], name: str) -> bytes:
    def line(path: str, content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(content)}\n"

    return ("".join(line(path, content) for path, content in files.items()) + f"{name},,\n").encode()


def page(links: list[tuple[str, str, str]]) -> str:
    anchors = "".join(f'<a href="{html.escape(to)}"{more}>{html.escape(text)}</a>\n' for text, to, more in links)
    head = '<head><meta charset="utf-8"><title>Packages</title></head>'
    return f'<!doctype html>\n<html lang="en">{head}<body>\n{anchors}</body></html>\n'


def main(directory: Path) -> None:
    project = tomllib.loads((WORKER / "pyproject.toml").read_text())["project"]
    files = contents(project)
    name = f"headway-{version()}.dist-info/RECORD"
    files[name] = record(files, name)
    home = directory / "headway"
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("*.whl"):
        old.unlink()
    wheel = home / f"headway-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, content)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    needs = f' data-requires-python="{html.escape(project["requires-python"])}"'
    (home / "index.html").write_text(page([(wheel.name, f"{wheel.name}#sha256={digest}", needs)]))
    (directory / "index.html").write_text(page([("headway", "headway/", "")]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
