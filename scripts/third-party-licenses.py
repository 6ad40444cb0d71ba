"""Prints the licences of everything that is built into the `headway` binary and its web page.

Crates are those that `headway-cli` is linked from on this platform; npm packages are those that the page's lock file
does not mark as tools, and the bundler, which leaves some code of its own in the page. The texts are read from where
cargo and npm have put the packages. A package without any is an error: somebody has to find out what it asks for.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEGAL = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.IGNORECASE)
SOURCE = re.compile(r"\.(rs|js|mjs|ts|json|toml)$")
BUNDLER = {"node_modules/vite", "node_modules/rolldown"}
# Packages whose licence file was forgotten, and another of the same authors under the same licence.
SAME_TERMS = {
    "tonic-prost": "tonic",
    "asn1-rs-impl": "asn1-rs",
    "react-remove-scroll-bar": "react-remove-scroll",
    "@redocly/openapi-core": "redoc",
    "@nodable/entities": "fast-xml-parser",
    "tr46": "whatwg-url",
}
# Under the Apache licence alone, whose text is the same for all, and without a file of it or a notice.
APACHE = {f"opentelemetry{part}" for part in ("", "-http", "-otlp", "-proto", "_sdk")}


@dataclass(frozen=True, order=True)
class Package:
    name: str
    version: str
    license: str
    repository: str
    texts: tuple[str, ...]


def texts(directory: Path) -> tuple[str, ...]:
    """What the package's licence and notice files say, each once."""
    named = sorted(path for path in directory.iterdir() if LEGAL.match(path.name) and not SOURCE.search(path.name))
    files = [file for path in named for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    return tuple(dict.fromkeys(tidy(file.read_text(encoding="utf-8", errors="replace")) for file in files))


def tidy(text: str) -> str:
    """Without what differs between copies of a licence but says nothing, and what only Vite's own program holds."""
    text = text.split("# Licenses of bundled dependencies")[0]
    return "\n".join(line.rstrip() for line in text.expandtabs(4).strip("\ufeff\r\n ").splitlines()).strip("\n")


def crates() -> list[Package]:
    host = re.search(r"^host: (.+)$", run("rustc", "-vV"), re.MULTILINE)
    assert host is not None
    metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", host[1]))
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    waiting, linked = [key for key, package in packages.items() if package["name"] == "headway-cli"], set()
    while waiting:
        key = waiting.pop()
        if key not in linked:
            linked.add(key)
            waiting.extend(needs[key])
    return [
        Package(
            crate["name"],
            crate["version"],
            crate["license"] or "see below",
            crate["repository"] or "",
            texts(Path(crate["manifest_path"]).parent),
        )
        for crate in (packages[key] for key in linked)
        if crate["source"] is not None
    ]


def npm_packages() -> list[Package]:
    web = ROOT / "web"
    lock = json.loads((web / "package-lock.json").read_text())["packages"]
    bundled = [path for path, entry in lock.items() if path and not entry.get("dev") and not entry.get("devOptional")]
    return [
        Package(
            path.rsplit("node_modules/", 1)[1],
            lock[path]["version"],
            lock[path].get("license", "see below"),
            "",
            texts(web / path),
        )
        for path in {*bundled, *BUNDLER}
    ]


def completed(packages: list[Package]) -> list[Package]:
    known = {package.name: package.texts for package in packages}
    borrowed = {name: known.get(other, ()) for name, other in SAME_TERMS.items()}
    borrowed |= dict.fromkeys(APACHE, (own_terms(),))
    return sorted(replace(each, texts=each.texts or borrowed.get(each.name, ())) for each in packages)


def run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def own_terms() -> str:
    """The Apache licence."""
    return tidy((ROOT / "LICENSE").read_text())


def standard_library() -> Package:
    version = run("rustc", "--version").split()[1]
    source = "https://github.com/rust-lang/rust"
    return Package("Rust standard library", version, "MIT OR Apache-2.0", source, (own_terms(),))


def main() -> int:
    packages = completed([standard_library(), *crates(), *npm_packages()])
    bare = [f"{package.name} {package.version}" for package in packages if not package.texts]
    if bare:
        print(f"no licence text is found for {', '.join(bare)}", file=sys.stderr)
        return 1
    users = defaultdict(list)
    for package in packages:
        for text in package.texts:
            users[text].append(f"{package.name} {package.version}")
    print("Software of others in this program, and under which licences:\n")
    for package in packages:
        print(f"{package.name} {package.version}: {package.license} {package.repository}".rstrip())
    for text, names in sorted(users.items(), key=lambda item: item[1]):
        print(f"\n{'=' * 80}\n{', '.join(names)}\n{'-' * 80}\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
