"""The process that forks the tests' commands has imported what the commands need."""

from pathlib import Path

import subscriber
from tests.commands import needed_modules


def test_every_module_of_the_commands_is_imported_once() -> None:
    """A command that imports the lake itself takes a second or two more."""
    folder = Path(subscriber.__path__[0])
    files = {
        ".".join(("subscriber", *path.relative_to(folder).with_suffix("").parts))
        for path in folder.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert files <= set(needed_modules())
