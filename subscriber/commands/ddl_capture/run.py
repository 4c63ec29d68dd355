"""``pgsub ddl-capture install NAME --execute``: run the script on a subscription's publisher.

The script runs in the database of the subscription's connection, as the role of the connection.
Most roles for replication may not create event triggers. The error names the roles with the right,
and the script can be printed and given to such a role.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from catalog.errcodes import (
    INSUFFICIENT_PRIVILEGE,
    FeatureNotSupported,
    InsufficientPrivilege,
    ReplicationError,
)
from subscriber.commands.context import CommandContext
from subscriber.commands.ddl_capture import Action
from subscriber.commands.ddl_capture.script import install_script, uninstall_script
from subscriber.commands.subscription_row import must_be_ready
from subscriber.messages import notice
from workers.proto.message_rows import FIRST_WITH_MESSAGES

RIGHT: Final = (
    "Event triggers are for superusers; on managed services for the administrator of the instance: "
    "a member of rds_superuser (Amazon), cloudsqlsuperuser (Google) or azure_pg_admin (Azure). The "
    "role must also be able to make schema pgsub (CREATE on the database)."
)


def script_of(action: Action) -> str:
    """The SQL of an action."""
    return install_script() if action is Action.INSTALL else uninstall_script()


def run_on_publisher(name: str, action: Action, context: CommandContext) -> None:
    """Run the SQL of an action on the publisher of a subscription.

    42501 with the needed right, 0A000 for a publisher that sends no logical messages.
    """
    sub = must_be_ready(name, context)
    with closing(context.connect(sub)) as conn:
        if action is Action.INSTALL and conn.server_version < FIRST_WITH_MESSAGES:
            raise FeatureNotSupported(
                f"publisher of version {conn.server_version} sends no logical messages",
                detail=f"PostgreSQL sends them from version {FIRST_WITH_MESSAGES} on.",
            )
        try:
            conn.exec(script_of(action))
        except ReplicationError as error:
            if error.code != INSUFFICIENT_PRIVILEGE:
                raise
            raise InsufficientPrivilege(
                f"could not {action} the event triggers: {error.primary}",
                hint=f"{RIGHT} pgsub ddl-capture {action} prints the SQL.",
            ) from None
    if action is Action.INSTALL and not context.settings.ddl_capture:
        context.notify(
            notice(
                "event triggers are installed, and no worker asks for what they tell",
                hint="Say ddl_capture: on under settings.",
            )
        )
