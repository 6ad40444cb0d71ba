"""The wheel that the server hands out: what is in it, and that it installs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import headway

WORKER = Path(__file__).parents[1]
ROOT = WORKER.parent


def build(directory: Path) -> None:
    """As scripts/build-web.sh does."""
    made = subprocess.run(
        [ROOT / "scripts" / "install-python.sh", "scripts/wheel/requirements.txt"], stdout=subprocess.PIPE, check=True
    )
    python = Path(made.stdout.decode().splitlines()[-1]) / "bin" / "python"
    subprocess.run([python, ROOT / "scripts" / "build-wheel.py", directory], check=True)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("simple")
    build(directory)
    return directory


def wheel_of(index: Path) -> Path:
    (wheel,) = (index / "headway").glob("*.whl")
    return wheel


def test_the_wheel_holds_every_module_its_types_and_its_licence(index: Path) -> None:
    with zipfile.ZipFile(wheel_of(index)) as archive:
        names = set(archive.namelist())
        information = f"headway-{headway.__version__}.dist-info"
        metadata = message_from_bytes(archive.read(f"{information}/METADATA"))
        legal = {name: archive.read(f"{information}/licenses/{name}") for name in ("LICENSE", "NOTICE")}
    modules = {path.relative_to(WORKER / "src").as_posix() for path in (WORKER / "src").rglob("*.py")}
    named = {f"{information}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE", "licenses/NOTICE")}
    assert names == modules | named | {"headway/py.typed"}
    assert legal == {name: (ROOT / name).read_bytes() for name in legal}
    assert (metadata["Version"], metadata["License-Expression"]) == (headway.__version__, "Apache-2.0")
    assert (metadata["Requires-Python"], metadata.get_all("Provides-Extra")) == (">=3.11", ["test", "trainer"])


def test_the_same_files_give_the_same_bytes(index: Path, tmp_path: Path) -> None:
    (WORKER / "src" / "headway" / "version.py").touch()
    build(tmp_path)
    for path in (wheel_of(index), index / "index.html", index / "headway" / "index.html"):
        assert (tmp_path / path.relative_to(index)).read_bytes() == path.read_bytes()


def test_pip_installs_it_from_the_index_and_checks_its_hash(index: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", "--quiet"]
    wheel = wheel_of(index)
    subprocess.run([*pip, "--index-url", index.as_uri(), "--target", tmp_path / "good", "headway"], check=True)
    # Without what only this repository has: as on another machine.
    where = tmp_path / "good"
    code = f"import sys; sys.path[:0] = [{str(where)!r}]; import headway; print(headway.__version__, headway.__file__)"
    found = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == f"{headway.__version__} {where / 'headway' / '__init__.py'}\n"
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    spoilt = subprocess.run(
        [*pip, "--index-url", index.as_uri(), "--target", tmp_path / "bad", "headway"], capture_output=True
    )
    assert spoilt.returncode != 0 and b"HASHES" in spoilt.stderr
