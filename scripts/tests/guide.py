"""Follows the administrator's guide and the quick start: runs every shell block of a page, line by line, as root of a machine of its own.

The machine is a file system made of this one's, with an /etc, /var and /run of its own; the rest is for reading but /dev, /proc and /sys. Its processes, host name
and network are its own too, so that nothing of it is left on this machine. A block is left out only where a comment before it says why:
`<!-- not executed: REASON -->`. What does not end by itself is marked with `<!-- executed in the background -->`. A file is written where the page says
"Save as `NAME`" before a block. It ends with 75 where a machine cannot be made: not as root, or without Debian's Postgres.

usage: guide.py [--binary PATH] [PAGE…]
"""

import argparse
import fcntl
import os
import pathlib
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# As the guide calls this machine, its first node, and the address of both.
SERVER, NODE, ADDRESS = "headway.example", "node-7", "10.0.0.17"
# What a reader of the quick start has: a script to train with.
SCRIPTS = {"train.sh": "#!/bin/sh\necho training\n"}
# What the guide's machine has and this one may lack: GPUs.
GPUS = "HEADWAY_AGENT_OPTIONS=--gpus 2"
TIME_LIMIT = 180
CANNOT = 75


def cannot(why):
    print(f"the guide cannot be followed here: {why}", file=sys.stderr)
    sys.exit(CANNOT)


BACKGROUND = "executed in the background"


def blocks(page):
    """The shell blocks of a page, and those to save as files: the first line, the lines, the language, what a comment says, the name of the file."""
    found, comment, file, inside, language = [], None, None, None, None
    for number, line in enumerate(page.splitlines(), 1):
        if inside is None and (said := re.fullmatch(r"<!-- (not executed: .+|executed in the background) -->", line)):
            comment = said[1]
        elif line.startswith("```"):
            if inside is None:
                inside, language = [], line[3:].strip()
                begin = number + 1
            else:
                if language == "sh" or file:
                    found.append((begin, inside, language, comment, file))
                inside, comment, file = None, None, None
        elif inside is not None:
            inside.append(line)
        elif line.strip():
            comment = None
            saved = re.search(r"Save as `([\w.]+)`", line)
            file = saved[1] if saved else None
    return found


def commands(begin, lines):
    """The commands of a block with their line numbers; one that ends with a backslash goes on below."""
    number, whole = begin, ""
    for offset, line in enumerate(lines):
        number = number if whole else begin + offset
        whole += line
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        if whole.strip():
            yield number, whole
        whole = ""


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def make_machine(machine, binary):
    """A root directory: this machine's, with places of its own where the guide writes."""
    mount("-t", "tmpfs", "-o", "mode=755", "guide", machine)
    own = {"etc", "var", "run", "tmp", "home", "root", "backups", "shared", "lost+found"}
    for entry in pathlib.Path("/").iterdir():
        if entry.is_symlink():
            (machine / entry.name).symlink_to(os.readlink(entry))
        elif entry.is_dir() and entry.name not in own:
            (machine / entry.name).mkdir()
            mount("--rbind", entry, machine / entry.name)
            if entry.name not in ("dev", "proc", "sys"):
                mount("-o", "remount,bind,ro", machine / entry.name)
    for name, mode in (("run", 0o755), ("tmp", 0o1777), ("var", 0o755), ("var/lib", 0o755), ("var/log", 0o755), ("root", 0o700)):
        (machine / name).mkdir()
        (machine / name).chmod(mode)
    (machine / "var/run").symlink_to("/run")
    shutil.copytree("/etc", machine / "etc", symlinks=True, ignore=lambda directory, _: ["postgresql"] if directory == "/etc" else [])
    mount("-t", "proc", "proc", machine / "proc")
    # Segments of a Postgres that ends with its namespace go with it.
    mount("-t", "tmpfs", "-o", "mode=1777", "shm", machine / "dev/shm")
    # A copy that every user may execute, and the rest of the directory as it is.
    here = machine / "root/local-bin"
    here.mkdir()
    for entry in pathlib.Path("/usr/local/bin").iterdir():
        if entry.name != "headway":
            shutil.copy2(entry, here / entry.name, follow_symlinks=False) if entry.is_symlink() else (here / entry.name).symlink_to(
                f"/tmp/usr-local-bin/{entry.name}"
            )
    (machine / "tmp/usr-local-bin").mkdir()
    mount("--bind", "/usr/local/bin", machine / "tmp/usr-local-bin")
    mount("--bind", here, machine / "usr/local/bin")
    checkout = machine / "root/headway"
    (checkout / "target/release").mkdir(parents=True)
    shutil.copy2(binary, checkout / "target/release/headway")
    shutil.copytree(ROOT / "deploy", checkout / "deploy")
    for name, script in SCRIPTS.items():
        (checkout / name).write_text(script)
        (checkout / name).chmod(0o755)
    stand_ins = machine / "root/bin"
    shutil.copytree(ROOT / "scripts/tests/stand-ins", stand_ins)
    for file in stand_ins.iterdir():
        file.chmod(0o755)


def set_up_network():
    """Loopback, and the address that the guide gives to the node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        up = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, up)  # SIOCSIFFLAGS
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(control, 0x8916, address)  # SIOCSIFADDR
    socket.sethostname(NODE)
    with open("/etc/hosts", "a", encoding="utf-8") as hosts:
        hosts.write(f"\n127.0.0.1 localhost {SERVER}\n{ADDRESS} {NODE}\n")


def servers_of_postgres():
    """Versions whose server is installed; a client of another version may lie beside them."""
    return [binary.parts[-3] for binary in pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres")]


def start_postgres():
    """Debian's own cluster, as its package makes it."""
    account = pwd.getpwnam("postgres")
    version = max(servers_of_postgres(), key=int)
    pathlib.Path("/var/lib/postgresql").mkdir()
    pathlib.Path("/var/log/postgresql").mkdir()
    pathlib.Path("/run/postgresql").mkdir()
    for directory in ("/var/lib/postgresql", "/var/log/postgresql", "/run/postgresql"):
        os.chown(directory, account.pw_uid, account.pw_gid)
    subprocess.run(["pg_createcluster", version, "main"], check=True, stdout=subprocess.DEVNULL)
    directory = f"/usr/lib/postgresql/{version}/bin"
    settings = f"-c config_file=/etc/postgresql/{version}/main/postgresql.conf"
    subprocess.run(
        ["runuser", "-u", "postgres", "--", f"{directory}/pg_ctl", "start", "--wait", "--silent",
         "-D", f"/var/lib/postgresql/{version}/main", "-o", settings, "-l", "/var/log/postgresql/main.log"],
        check=True, stdin=subprocess.DEVNULL,
    )


ENVIRONMENT = {
    "PATH": "/root/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root", "USER": "root", "LANG": "C.UTF-8", "NO_COLOR": "1",
}


class Shell:
    """One shell of one person, from the first line of the guide to the last."""

    MARK = "--- done ---"

    def __init__(self):
        self.process = subprocess.Popen(
            ["bash", "--norc", "-eEo", "pipefail"], cwd="/root/headway", env=ENVIRONMENT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        self.said = ""

    def run(self, command):
        """What a command says, and whether it succeeded."""
        # The shell's own input is the script: a command that reads must not take the rest of it.
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\necho; echo '{self.MARK}'\n")
        self.process.stdin.flush()
        said = ""
        for line in self.process.stdout:
            if line.rstrip("\n") == self.MARK:
                self.said += said
                return said, True
            said += line
        return said, False


def start_in_background(command):
    """Starts what goes on until the end of the page, and waits until it says that it is up."""
    log = pathlib.Path("/var/log/background.log")
    with log.open("wb") as output:
        process = subprocess.Popen(["bash", "-c", command], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    deadline = time.monotonic() + 60
    while "Headway is up" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"`{command}` does not come up:\n{log.read_text(errors='replace')}")
        time.sleep(0.1)


def follow(page, text):
    """Runs the blocks in order; the first command that fails ends the test."""
    shell = Shell()
    executed = 0
    for begin, lines, language, comment, file in blocks(text):
        if comment and comment != BACKGROUND:
            print(f"{page}:{begin}: {comment}")
            continue
        if language != "sh":
            pathlib.Path(file).write_text("\n".join(lines) + "\n")
            continue
        if comment == BACKGROUND:
            start_in_background(" ".join(lines))
            executed += 1
            continue
        for number, command in commands(begin, lines):
            if "hwj_…" in command:
                tokens = re.findall(r"\bhwj_[A-Za-z0-9_-]+", shell.said)
                command = command.replace("hwj_…", tokens[-1] if tokens else "no-token-was-printed")
            said, succeeded = shell.run(command)
            if not succeeded:
                logs = "".join(
                    f"\n--- {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                    for log in sorted(pathlib.Path("/var/log/units").glob("*.log"))
                )
                print(f"{page}:{number}: this command failed: {command}\n{said}{logs}", file=sys.stderr)
                sys.exit(1)
            executed += 1
            # As on a machine without GPUs of its own.
            agent = pathlib.Path("/etc/headway/agent.env")
            if agent.exists() and GPUS not in agent.read_text():
                with agent.open("a", encoding="utf-8") as file:
                    file.write(f"{GPUS}\n")
    if executed < 10:
        sys.exit(f"{page}: only {executed} commands were found: are its blocks still of `sh`?")
    print(f"{page}: {executed} commands executed, all succeeded")


def inside(machine, page, binary):
    make_machine(machine, binary)
    text = page.read_text(encoding="utf-8")
    os.chroot(machine)
    os.chdir("/root/headway")
    set_up_network()
    # An account of the machine underneath is not the guide's.
    subprocess.run(["userdel", "headway"], stderr=subprocess.DEVNULL)
    start_postgres()
    follow(page.name, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pages = [ROOT / "docs" / page for page in ("admin-guide.md", "quick-start.md")]
    parser.add_argument("pages", nargs="*", type=pathlib.Path, default=pages)
    parser.add_argument("--binary", type=pathlib.Path, default=os.environ.get("HEADWAY_BINARY", ROOT / "target/debug/headway"))
    parser.add_argument("--machine", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.machine:
        return inside(options.machine, options.pages[0], options.binary)
    if os.geteuid() != 0:
        cannot("it takes root to make users and mounts")
    if not shutil.which("pg_createcluster") or not servers_of_postgres():
        cannot("Debian's package postgresql is not installed")
    isolated = ["unshare", "--mount", "--propagation", "private", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*isolated, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        cannot("namespaces cannot be made, as in a container without the right to mount")
    for page in options.pages:
        with tempfile.TemporaryDirectory(prefix="headway-guide-") as directory:
            again = [sys.executable, __file__, "--machine", directory, "--binary", options.binary.resolve(), page.resolve()]
            ended = subprocess.run([*isolated, *map(str, again)], timeout=TIME_LIMIT)
        if ended.returncode != 0:
            sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
