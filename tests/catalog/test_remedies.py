import pytest

from catalog import remedies
from catalog.errcodes import ConnectionFailure, ProtocolViolation, ReplicationError, UndefinedObject


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("SSL error: certificate verify failed", "name the authority's certificate"),
        ('server certificate for "a" does not match host name "b"', "host of the connection"),
        ('root certificate file "r.pem" does not exist', "sslrootcert"),
        ("server does not support SSL, but SSL was required", "ssl = on"),
        ('private key file "k" has group or world access', "sslkey"),
        ('FATAL:  password authentication failed for user "u"', "password_env"),
        ("fe_sendauth: no password supplied", "password_env"),
        ('FATAL:  no pg_hba.conf entry for host "::1"', "pg_hba.conf"),
        ("Only roles with the REPLICATION attribute may start", "ALTER ROLE"),
        ("User does not have CONNECT privilege.", "GRANT CONNECT"),
        ('FATAL:  number of … exceeds "max_wal_senders" (currently 1)', "Increase max_wal_senders"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ('FATAL:  database "d" does not exist', "dbname"),
        ('FATAL:  role "r" does not exist', "user"),
        ("received invalid response to SSL negotiation: H", "does not speak"),
        ('could not translate host name "x" to address', "host or port"),
        ("port 1 failed: Connection refused", "start the publisher"),
        ("FATAL:  the database system is starting up", "Try again"),
        ("FATAL:  Passwort-Authentifizierung fehlgeschlagen", "Check host, port, dbname and user"),
    ],
)
def test_a_connection_s_error_gets_the_hint_that_fits(said: str, hint: str) -> None:
    error = remedies.connecting(ConnectionFailure("could not connect", detail=said))
    assert hint in (error.hint or "")


def test_a_hint_of_its_own_stays() -> None:
    error = ReplicationError("all replication slots are in use", hint="Free one.", sqlstate="53400")
    assert remedies.making_slot(error).hint == "Free one."


def test_what_has_no_remedy_gets_none() -> None:
    error = ReplicationError("a bug", sqlstate="XX000")
    assert remedies.disk(remedies.making_slot(error)).hint is None


def test_garbage_on_the_stream_says_where_to_look() -> None:
    error = remedies.stream(ProtocolViolation("invalid message in the replication stream"))
    assert "a pooler" in (error.hint or "")
    assert remedies.stream(ReplicationError("a bug", sqlstate="XX000")).hint is None


def test_a_publication_that_was_not_there_yet() -> None:
    """H-26: a publisher before 18 decodes an old change with the catalog it had then."""
    error = UndefinedObject('publication "late" does not exist')
    assert "before version 18" in (remedies.stream(error).hint or "")
    other = UndefinedObject('replication slot "late" does not exist')
    assert remedies.stream(other).hint is None
