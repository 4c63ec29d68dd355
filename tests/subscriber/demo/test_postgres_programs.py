"""The programs of embedded servers."""

from __future__ import annotations

import os

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.demo.postgres_programs import INSTALLS


def test_programs_are_copied_only_where_the_server_may_not_run_as_us() -> None:
    programs = EmbeddedPublisher().bin_dir
    inside = "site-packages" in programs.parts
    assert inside == (os.geteuid() != 0)
    assert (programs / "pgbench").exists()
    assert INSTALLS.keys() == {16, 18}
