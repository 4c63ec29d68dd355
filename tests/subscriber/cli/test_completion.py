"""What the shell is told when the tab key is pressed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.status.views import VIEWS
from tests.harness import COMMAND
from tests.shell import Shell


@pytest.fixture
def tables(pgsub: Shell, stored: Subscription) -> None:
    store = CatalogStore.open(pgsub.data_dir)
    for name in ("orders", "order_items", "Odd name"):
        store.insert_rel(
            SubscriptionRel(stored.oid, 0, SubRelState.READY, None, "public", name, "public", name)
        )
    store.close()


def offered(data_dir: Path, line: str, monkeypatch: pytest.MonkeyPatch, pgsub: Shell) -> list[str]:
    """The words that bash is offered for the last word of the line."""
    words = f"pgsub --data-dir {data_dir} {line}"
    monkeypatch.setenv("_PGSUB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    ran = pgsub()
    assert ran.err == ""
    return ran.out.split("\n")[:-1] if ran.out.endswith("\n") else ran.out.split("\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("drop ", ["mysub"]),
        ("drop my", ["mysub"]),
        ("drop other", [""]),
        ("wait m", ["mysub"]),
        ("refresh mysub --recopy public.o", ["public.orders", "public.order_items"]),
        ("refresh mysub --recopy public.orders public.o", ["public.order_items"]),
        ("refresh other --recopy ", [""]),
        ("schema mysub public.order_", ["public.order_items"]),
        ("acc", ["accept-gap"]),
    ],
)
@pytest.mark.usefixtures("tables")
def test_names_of_the_data_directory_are_offered(
    pgsub: Shell, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    assert offered(pgsub.data_dir, line, monkeypatch, pgsub) == words


def test_views_are_offered(pgsub: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [name for name in VIEWS if name.startswith("pg_stat")]
    assert offered(pgsub.data_dir, "status pg_stat", monkeypatch, pgsub) == expected


def test_nothing_is_said_without_a_data_directory(
    pgsub: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offered(pgsub.data_dir, "drop ", monkeypatch, pgsub) == [""]
    assert not pgsub.data_dir.exists()


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """A home in which ``pgsub --install-completion`` has prepared a shell; the environment."""

    def install(shell: str) -> dict[str, str]:
        program = shutil.which(shell)
        if program is None:
            pytest.skip(f"{shell} is not on PATH")
        path = f"{COMMAND.parent}:{os.environ['PATH']}"
        home = {**os.environ, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "PATH": path}
        words = [program, "-c", "pgsub --install-completion; true"]
        done = subprocess.run(words, env=home, capture_output=True, text=True, check=True)
        assert f"{shell} completion installed" in done.stdout
        return home

    return install


@pytest.mark.usefixtures("tables")
def test_bash_completes_the_line(pgsub: Shell, installed: Callable[[str], dict[str, str]]) -> None:
    home = installed("bash")
    code = (
        'source ~/.bashrc; complete -p pgsub; COMP_WORDS=(pgsub --data-dir "$1" drop my); '
        'COMP_CWORD=4; _pgsub_completion pgsub; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code, "bash", str(pgsub.data_dir)],
        capture_output=True,
        text=True,
        check=True,
        env=home,
    )
    assert done.stdout.splitlines()[-1] == "mysub"


@pytest.mark.usefixtures("tables")
def test_fish_completes_the_line(pgsub: Shell, installed: Callable[[str], dict[str, str]]) -> None:
    home = installed("fish")
    code = 'complete --do-complete "pgsub --data-dir $argv[1] drop my"'
    done = subprocess.run(
        ["fish", "-c", code, str(pgsub.data_dir)],
        capture_output=True,
        text=True,
        check=True,
        env=home,
    )
    assert done.stdout == "mysub\n"


@pytest.mark.usefixtures("tables")
def test_zsh_completes_the_line(pgsub: Shell, installed: Callable[[str], dict[str, str]]) -> None:
    """On a terminal, as only there zsh completes: Tab, then Ctrl-A and a word before the line."""
    home = installed("zsh")
    setup = "PS1='> '; source ~/.zshrc; print ready\n"
    terminal, of_zsh = pty.openpty()
    words = ["zsh", "-f", "-i"]
    with subprocess.Popen(words, stdin=of_zsh, stdout=of_zsh, stderr=of_zsh, env=home) as zsh:
        os.close(of_zsh)
        try:
            os.write(terminal, setup.encode())
            read_until(terminal, rb"\nready")
            os.write(terminal, f"pgsub --data-dir {pgsub.data_dir} drop my\t".encode())
            read_until(terminal, rb"drop mysub")
            os.write(terminal, b"\x01print -r line: \n")
            read_until(terminal, rb"\nline: pgsub [^\n]* drop mysub\r")
        finally:
            zsh.kill()
            os.close(terminal)


def read_until(terminal: int, wanted: bytes) -> None:
    """Read what a program prints on its terminal until a line is there."""
    seen = b""
    while not re.search(wanted, seen):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, seen
        seen += os.read(terminal, 4096)
