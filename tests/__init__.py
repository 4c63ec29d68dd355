"""The tests; `tests` is importable only for them (pytest adds the project's root)."""
