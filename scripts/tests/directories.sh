#!/usr/bin/env bash
# Facts about the directories that scripts make and remove: only their own, never through a link.
source "$(dirname "$0")/assert.sh"

# The demo says no to this directory before it does anything, with these words.
refused() { # DIRECTORY WORDS
    local said
    if said=$(HEADWAY_DEMO_DIR=$1 "$root/scripts/demo.sh" 2>&1); then
        return 1
    fi
    echo "$said"
    [[ $said == *"$2"* && $said != *"==>"* ]]
}

fact_a_home_directory_is_not_removed() {
    mkdir home
    echo precious >home/letter
    refused "$PWD/home" "did not make"
    refused "$PWD/home/" "did not make"
    [ "$(cat home/letter)" = precious ]
}

fact_a_link_is_not_followed() {
    make_ours "$PWD/real"
    echo precious >real/letter
    ln -s real link
    refused "$PWD/link" "did not make"
    refused "$PWD/link//" "did not make"
    [ "$(cat real/letter)" = precious ]
}

fact_a_mark_that_is_a_link_counts_for_nothing() {
    mkdir home
    touch elsewhere
    ln -s ../elsewhere "home/$mark"
    refused "$PWD/home" "did not make"
    [ -d home ]
}

fact_a_directory_of_another_user_is_not_trusted() {
    [ "$(id -u)" = 0 ] || return 0 # only root can give one away
    make_ours "$PWD/theirs"
    chown nobody theirs
    refused "$PWD/theirs" "did not make"
    [ -d theirs ]
}

fact_a_demo_that_runs_keeps_its_directory() {
    make_ours "$PWD/data"
    exec 9>data/lock
    flock 9
    refused "$PWD/data" "a cluster runs in"
    is_ours "$PWD/data"
}

fact_what_was_ours_is_made_anew_and_private() {
    make_ours "$PWD/a/b"
    touch a/b/old
    make_ours "$PWD/a/b/"
    [ ! -e a/b/old ]
    [ "$(stat -c %a a/b)" = 700 ]
    is_ours "$PWD/a/b"
}

fact_cleaning_the_cache_takes_our_environments_and_leaves_everything_else() {
    export HEADWAY_CACHE=$PWD/home cache=$PWD/home
    mkdir -p home/letters
    echo precious >home/letter
    make_ours "$cache/venv-1"
    ln -s "$PWD/home/venv-1" home/link
    if "$root/scripts/clean-cache.sh" "$cache"/*; then
        return 1 # it tells that something stayed
    fi
    [ ! -e home/venv-1 ]
    [ -d home/letters ]
    [ -L home/link ]
    [ "$(cat home/letter)" = precious ]
}

fact_a_cache_that_was_all_ours_goes_whole() {
    export HEADWAY_CACHE=$PWD/cache cache=$PWD/cache
    make_ours "$cache/venv-1"
    "$root/scripts/clean-cache.sh" "$cache"/*
    [ ! -e cache ]
    "$root/scripts/clean-cache.sh" "$cache"/*
}

run_facts
