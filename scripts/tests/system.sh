#!/usr/bin/env bash
# Facts about what a machine is told that lacks something, before anything is built or installed.
source "$(dirname "$0")/assert.sh"

# A machine that has only these programs (and those that every shell has), as stand-ins that end well.
machine() {
    local program
    mkdir bin
    for program in bash dirname head id env; do
        ln -s "$(command -v "$program")" "bin/$program"
    done
    for program in "$@"; do
        printf '#!/bin/sh\nexit 0\n' >"bin/$program"
        chmod +x "bin/$program"
    done
}

# It stops and says these words.
told() {
    local said words
    if said=$(PATH=$PWD/bin YES=1 "$BASH" "$root/scripts/install-system.sh" 2>&1); then
        echo "it went on: $said"
        return 1
    fi
    echo "$said"
    for words in "$@"; do
        [[ $said == *"$words"* ]] || return 1
    done
}

fact_without_rust_one_is_told_to_install_it() {
    machine node npm python3
    told "'cargo' is needed" rustup
}

fact_an_old_python_is_refused_with_the_floor_of_pytorch() {
    machine cargo node npm
    printf '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n' >bin/python3
    chmod +x bin/python3
    told "PyTorch needs Python $python_floor or newer, and python3 is Python 3.9.2"
}

fact_without_apt_the_packages_are_named() {
    machine cargo node npm python3 postgres
    told "gcc libc6-dev curl" "no apt-get"
}

fact_without_sudo_a_user_is_told_what_root_must_run() {
    machine cargo node npm python3 postgres apt-get
    rm bin/id
    printf '#!/bin/sh\necho 1000\n' >bin/id
    chmod +x bin/id
    told "have root run 'apt-get install --no-install-recommends gcc libc6-dev curl'"
}

fact_the_floor_is_what_the_pinned_pytorch_asks_for() {
    local torch
    torch=$(echo "$(venv_dir)"/lib/python*/site-packages/torch-*.dist-info/METADATA)
    [ -e "$torch" ] || return 0 # not installed yet on this machine
    grep -qx "Requires-Python: >=$python_floor" "$torch"
}

fact_the_readme_and_the_package_name_the_same_floor() {
    grep -q "Python ≥ $python_floor " "$root/README.md"
    grep -qx "requires-python = \">=$python_floor\"" "$root/worker/pyproject.toml"
}

run_facts
