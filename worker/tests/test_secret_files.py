"""How a script finds its secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headway


def test_a_file_goes_before_a_variable_and_is_read_as_it_is_every_time(tmp_path: Path) -> None:
    memory = os.memfd_create("secret")
    os.write(memory, "schlüssel\r\n".encode())
    variables = {"KEY_FILE": f"/proc/self/fd/{memory}", "KEY": "old", "PLAIN": "as is"}
    for _ in range(2):
        assert headway.secret("KEY", variables) == "schlüssel\r\n"
    assert headway.secret("PLAIN", variables) == "as is"
    os.close(memory)


def test_a_secret_that_was_not_handed_over_says_how_to_get_it() -> None:
    with pytest.raises(headway.MissingSecret, match=r"secrets: \[KEY\]"):
        headway.secret("KEY", {})
