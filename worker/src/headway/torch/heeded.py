"""Whether a script does what it was asked. Where it does not, that is said once: nobody else would tell its author."""

from __future__ import annotations

import atexit
import logging

from headway import said, sdk

log = logging.getLogger("headway")


class Heeded:
    """Is told what was asked after each step, and what the script then does."""

    def __init__(self) -> None:
        self._save_at: int | None = None
        self._stop_at: int | None = None
        self._offers = 0
        atexit.register(self._at_exit)

    def begin_step(self) -> None:
        if self._stop_at is not None:
            said.once(
                "trains on",
                f"this job was asked to stop at step {self._stop_at} and trains on: it will be killed. Where asked.stop"
                " is true, sys.exit(reporter.stopped())",
            )

    def asked(self, step: int, save: bool, stop: bool) -> None:
        if save:
            self._complain_of_unsaved()
            self._save_at, self._offers = step, sdk.offers()
        if stop and self._stop_at is None:
            self._stop_at = step

    def saves(self) -> None:
        """Whatever comes of it."""
        self._save_at = None

    def leaves(self) -> None:
        self._complain_of_unsaved()
        self._stop_at = None

    def _complain_of_unsaved(self) -> None:
        if self._save_at is not None and sdk.offers() == self._offers:
            said.once(
                "unsaved",
                f"a checkpoint was asked for at step {self._save_at}, and none was written since: where asked.save is"
                " true, call reporter.save or save_together",
            )

    def _at_exit(self) -> None:
        if self._stop_at is not None:
            log.warning(
                "this job was asked to stop at step %d and ends without reporter.stopped(): exit with what that"
                " returns, or an unfinished job may count as done",
                self._stop_at,
            )
