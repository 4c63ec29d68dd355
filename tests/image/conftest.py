"""The engine and the image: once for all tests, whichever comes first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT
from tests.image.engine import base_image, engine
from tests.image.page import HOST, IMAGE, example, run


@pytest.fixture(scope="session")
def build() -> Iterator[list[str]]:
    """An engine, and the words that a machine without a registry adds to ``docker build``."""
    with engine():
        given = {"BASE": base_image(), "PIP_TRUSTED_HOST": HOST}
        yield ["--network", "host", *(f"--build-arg={k}={v}" for k, v in given.items())]


@pytest.fixture(scope="session")
def image(build: list[str]) -> str:
    """The image that the page's commands build; its name."""
    built, _ = example()
    run(built.replace("docker build", f"docker build {' '.join(build)}"), ROOT)
    return IMAGE
