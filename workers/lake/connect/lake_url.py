"""The parameters of the lake server's URL.

The gateway of the embedded server is a parameter of the server's URL. Beside a Spark server of the
user runs a lake server of pgsub as the commit service: the URL is that of the user's server, and
the parameter with the gateway has another name, because sessions and tasks are elsewhere.
"""

from __future__ import annotations

from typing import Final

GATEWAY: Final = "pgsub-gateway"
"""Port and secret of the embedded server's Java gateway, as ``PORT.SECRET``."""
COMMIT_SERVICE: Final = "pgsub-commit-service"
"""The same, of the gateway of a commit service beside the server of the URL."""


def url_parameter(url: str, name: str) -> str | None:
    """A parameter of the URL; None without."""
    for parameter in url.partition("/;")[2].split(";"):
        key, _, value = parameter.partition("=")
        if key == name:
            return value
    return None


def with_commit_service(remote: str, own: str) -> str:
    """The URL ``remote`` of a user's server, with the gateway of pgsub's lake server at ``own``."""
    gateway = url_parameter(own, GATEWAY)
    if gateway is None:
        return remote
    base, _, parameters = remote.partition("/;")
    given = [parameters] if parameters else []
    return f"{base.rstrip('/')}/;{';'.join([*given, f'{COMMIT_SERVICE}={gateway}'])}"
