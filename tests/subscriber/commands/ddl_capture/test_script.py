"""The SQL of the event triggers, as text; integration tests run it."""

from __future__ import annotations

from subscriber.commands.ddl_capture.script import install_script, uninstall_script
from workers.proto.message_rows import DDL_PREFIX
from workers.publisher.table_shape import DDL_TRIGGERS


def test_every_trigger_is_made_and_removed_in_one_transaction() -> None:
    install, uninstall = install_script(), uninstall_script()
    for name, event in DDL_TRIGGERS.items():
        assert f"CREATE EVENT TRIGGER {name} ON {event} EXECUTE FUNCTION pgsub.capture_ddl();" in (
            install
        )
        assert f"DROP EVENT TRIGGER IF EXISTS {name};" in install
        assert f"DROP EVENT TRIGGER IF EXISTS {name};" in uninstall
    for script in (install, uninstall):
        assert script.startswith("BEGIN;\n")
        assert script.endswith("COMMIT;\n")


def test_the_message_is_of_the_transaction_and_has_the_prefix() -> None:
    assert f"pg_logical_emit_message(true, '{DDL_PREFIX}'" in install_script()
