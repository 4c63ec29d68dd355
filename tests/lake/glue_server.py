"""moto's server, whose Glue refuses what Glue refuses; a program of its own.

moto's Glue takes every update of a table. Here an update without the version that it replaces, and
an update of another version than the newest, is refused, as by Glue: two commits from one state of
a table have one winner. moto answers a refused key or right in XML, and Glue answers in JSON.
"""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse
from moto.iam.access_control import IAMRequest
from moto.server import main

_ONE_BY_ONE = threading.Lock()


def update_table(response: Any) -> Any:
    """Update a table if ``VersionId`` is the newest version."""
    given = response.parameters
    with _ONE_BY_ONE:
        table = response.glue_backend.get_table(given["DatabaseName"], given["TableInput"]["Name"])
        if given.get("VersionId") != table.as_dict()["VersionId"]:
            raise JsonRESTError("ConcurrentModificationException", "Update table failed")
        return _UPDATE(response)


def refuse_right(request: Any) -> NoReturn:
    """Answer that the user may not do the action."""
    raise JsonRESTError(
        "AccessDeniedException",
        f"User: {request._access_key.arn} is not authorized to perform: {request._action}",
    )


def refuse_key(request: Any, reason: str) -> NoReturn:
    """Answer that there is no such key."""
    del request, reason
    raise JsonRESTError(
        "UnrecognizedClientException", "The security token included in the request is invalid."
    )


def refuse_signature(request: Any) -> NoReturn:
    """Answer that the secret is another one."""
    del request
    raise JsonRESTError(
        "InvalidSignatureException",
        "The request signature we calculated does not match the signature you provided.",
    )


_UPDATE = GlueResponse.update_table
_REFUSALS = {
    "_raise_access_denied": refuse_right,
    "_raise_invalid_access_key": refuse_key,
    "_raise_signature_does_not_match": refuse_signature,
}

if __name__ == "__main__":
    for name, method in _REFUSALS.items():
        setattr(IAMRequest, name, method)
    setattr(GlueResponse, _UPDATE.__name__, update_table)
    main()
