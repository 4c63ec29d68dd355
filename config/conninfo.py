"""Connection strings: libpq's two forms, read far enough to split the secrets off.

A subscription's connection string is stored and displayed, and may hold no secret. ``password=`` is
taken out and goes to a private file; further secrets are refused, because libpq has places for them
outside the configuration. Text that libpq would refuse is refused with libpq's words (42601).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from catalog.errcodes import FeatureNotSupported, SyntaxErrorOrAccess

_URI_PREFIXES: Final = ("postgresql://", "postgres://")

_KEYWORDS: Final = frozenset(
    """service servicefile user password passfile channel_binding connect_timeout dbname host
    hostaddr port client_encoding options application_name fallback_application_name keepalives
    keepalives_idle keepalives_interval keepalives_count tcp_user_timeout sslmode requiressl
    sslnegotiation sslcompression sslcert sslkey sslcertmode sslpassword sslrootcert sslcrl
    sslcrldir sslsni requirepeer require_auth min_protocol_version max_protocol_version
    ssl_min_protocol_version ssl_max_protocol_version gssencmode krbsrvname gsslib gssdelegation
    replication target_session_attrs load_balance_hosts scram_client_key scram_server_key
    sslkeylogfile oauth_issuer oauth_client_id oauth_client_secret oauth_scope""".split()  # noqa: SIM905  # one per line is 60 lines
)

_REFUSED: Final = frozenset(
    {"sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
"""Secrets besides the password; they would end in the catalog."""

_FILES: Final = frozenset(
    {
        "passfile", "servicefile", "sslcert", "sslcrl", "sslcrldir", "sslkey", "sslkeylogfile",
        "sslrootcert",
    }
)  # fmt: skip
"""Keywords that name a file or a folder."""


_HARMLESS: Final = _KEYWORDS - _REFUSED - {"password"}

_KEYWORD: Final = re.compile(r"([^\s=]+)\s*=")


def may_hold_secret(text: str) -> bool:
    """Whether ``text``, perhaps a part of a connection string, may contain a password."""
    return "://" in text or any(name not in _HARMLESS for name in _KEYWORD.findall(text))


@dataclass(frozen=True, slots=True)
class Conninfo:
    """A connection string in keyword form without a password, and the password, if any."""

    text: str
    password: str | None = None

    def __repr__(self) -> str:
        return f"Conninfo({self.text!r})"


def split_password(conninfo: str, folder: Path | None = None) -> Conninfo:
    """Parse ``conninfo`` (keywords or URI) and take the password out.

    With ``folder``, names of files are relative to ``folder``: commands, workers and Spark's tasks
    run in different folders, and all have to find the file.

    42601 for text that libpq cannot parse, 0A000 for a secret other than the password. The error
    never contains the connection string.
    """
    if conninfo.startswith(_URI_PREFIXES):
        parts = _parse_uri(conninfo)
    else:
        parts = _parse_keywords(conninfo)
    for keyword in parts:
        if keyword not in _KEYWORDS:
            raise SyntaxErrorOrAccess(
                f'invalid connection string syntax: invalid connection option "{keyword}"'
            )
        if keyword in _REFUSED:
            raise FeatureNotSupported(
                f'"{keyword}" is not supported in the connection of a subscription',
                hint="Name a service with service=, and put it into the service file.",
            )
        if folder is not None and keyword in _FILES:
            parts[keyword] = _absolute(keyword, parts[keyword], folder)
    password = parts.pop("password", None)
    text = " ".join(f"{keyword}={_quote(value)}" for keyword, value in parts.items())
    return Conninfo(text, password or None)


def passfile_line(password: str) -> str:
    """The line of a libpq password file that gives ``password`` to any server.

    Raises 42601 for a password that no such line can hold. libpq takes a carriage return at the
    end for a part of the line break.
    """
    if "\n" in password or "\0" in password or password.endswith("\r"):
        raise SyntaxErrorOrAccess("a password must not contain a line break")
    try:
        password.encode()
    except UnicodeEncodeError:  # an environment variable may have any bytes
        raise SyntaxErrorOrAccess("a password must be UTF-8") from None
    return "*:*:*:*:" + password.replace("\\", "\\\\").replace(":", "\\:") + "\n"


def _absolute(keyword: str, value: str, folder: Path) -> str:
    """The absolute name of a file; a value that libpq does not take for a file stays."""
    if not value or (keyword, value) == ("sslrootcert", "system"):
        return value
    if keyword == "sslkey" and ":" in value:  # a key of an OpenSSL engine
        return value
    return str(folder.absolute() / value)


def _quote(value: str) -> str:
    if value and not any(c in "'\\" or c.isspace() for c in value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _parse_keywords(conninfo: str) -> dict[str, str]:
    """``conninfo_parse``: ``keyword = value`` or ``keyword = 'value'``, backslash escapes."""
    parts: dict[str, str] = {}
    at = 0
    while at < len(conninfo):
        if conninfo[at].isspace():
            at += 1
            continue
        start = at
        while at < len(conninfo) and conninfo[at] != "=" and not conninfo[at].isspace():
            at += 1
        keyword = conninfo[start:at]
        while at < len(conninfo) and conninfo[at].isspace():
            at += 1
        if at == len(conninfo) or conninfo[at] != "=":
            # Not named: the text may be the tail of an unquoted password.
            raise _syntax('missing "=" after a keyword in connection info string')
        at += 1
        while at < len(conninfo) and conninfo[at].isspace():
            at += 1
        parts[keyword], at = _parse_value(conninfo, at)
    return parts


def _parse_value(conninfo: str, at: int) -> tuple[str, int]:
    """The value that begins at ``at``, and the position of the end."""
    value = ""
    quoted = conninfo[at : at + 1] == "'"
    at += quoted
    while at < len(conninfo):
        char = conninfo[at]
        at += 1
        if quoted and char == "'":
            return value, at
        if not quoted and char.isspace():
            return value, at
        if char == "\\":
            char = conninfo[at : at + 1]
            at += 1
        value += char
    if quoted:
        raise _syntax("unterminated quoted string in connection info string")
    return value, at


def _parse_uri(uri: str) -> dict[str, str]:
    """``conninfo_uri_parse``: ``scheme://[user[:password]@][host[:port],…][/dbname][?k=v&…]``."""
    rest, _, query = uri.split("://", 1)[1].partition("?")
    parts: dict[str, str] = {}
    before_slash, _, after_slash = rest.partition("/")
    if "@" in before_slash:
        userinfo, _, rest = rest.partition("@")
        user, colon, password = userinfo.partition(":")
        if user:
            parts["user"] = _decode(user)
        if colon:
            parts["password"] = _decode(password)
        before_slash, _, after_slash = rest.partition("/")
    names, ports = _parse_hosts(before_slash)
    if any(names):
        parts["host"] = ",".join(names)
    if any(ports):
        parts["port"] = ",".join(ports)
    if after_slash:
        parts["dbname"] = _decode(after_slash)
    for pair in query.split("&") if query else ():
        keyword, equals, value = pair.partition("=")
        if not equals:
            raise _syntax("missing key/value separator in a URI query parameter")
        keyword, value = _decode(keyword), _decode(value)
        if (keyword, value) == ("ssl", "true"):
            keyword, value = "sslmode", "require"
        parts[keyword] = value
    return parts


def _parse_hosts(hosts: str) -> tuple[list[str], list[str]]:
    names, ports = [], []
    for host in hosts.split(","):
        if host.startswith("["):
            name, bracket, tail = host[1:].partition("]")
            if not bracket or (tail and not tail.startswith(":")):
                raise _syntax('expected ":" or the end of the host after an IPv6 address in URI')
            port = tail[1:]
        else:
            name, _, port = host.partition(":")
        # Not named: with "@" or "/" unescaped in a password, the text is the rest of the password.
        if "@" in name or (port and not port.isdecimal()):
            raise _syntax(
                'bad host or port in URI; "@", "/" and ":" in a password are %40, %2F, %3A'
            )
        names.append(_decode(name))
        ports.append(port)
    return names, ports


def _decode(text: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise _syntax("percent-encoded value is not UTF-8") from None
    if "\0" in decoded:
        raise _syntax("forbidden value %00 in percent-encoded value")
    return decoded


def _syntax(what: str) -> SyntaxErrorOrAccess:
    return SyntaxErrorOrAccess(f"invalid connection string syntax: {what}")
