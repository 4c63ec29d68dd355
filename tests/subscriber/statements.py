"""Statements that PostgreSQL refuses, and what it says: SQLSTATE and primary message.

They stand for themselves in the unit tests and are put to a real server, where subscription ``s``
exists, disabled, without a slot and with its origin at 0/1F4, and ``t`` does not.
"""

from __future__ import annotations

CONNECTION = "CONNECTION 'dbname=nowhere' PUBLICATION p"
OFFLINE = f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect = false"
LONG = "x" * 70

SYNTAX = [
    # What the grammar refuses: the place is part of the answer.
    ("CREATE SUBSCRIPTION", 'syntax error at end of input'),
    ("CREATE SUBSCRIPTION;", 'syntax error at or near ";"'),
    ("CREATE SUBSCRIPTION t", "syntax error at end of input"),
    ("CREATE SUBSCRIPTION t CONNECTION dbname PUBLICATION p", 'syntax error at or near "dbname"'),
    ("CREATE SUBSCRIPTION t CONNECTION 'x'", "syntax error at end of input"),
    ("CREATE SUBSCRIPTION t CONNECTION 'x' 'y' PUBLICATION p", "syntax error at or near \"'y'\""),
    ("CREATE SUBSCRIPTION t CONNECTION x'ff' PUBLICATION p", "syntax error at or near \"x'ff'\""),
    ("CREATE SUBSCRIPTION t CONNECTION 'x' PUBLICATION", "syntax error at end of input"),
    ("CREATE SUBSCRIPTION t CONNECTION 'x' PUBLICATION p,", "syntax error at end of input"),
    ("CREATE SUBSCRIPTION t CONNECTION 'x' PUBLICATION p q", 'syntax error at or near "q"'),
    ("CREATE SUBSCRIPTION t CONNECTION 'x' PUBLICATION 'p'", "syntax error at or near \"'p'\""),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH", "syntax error at end of input"),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH ()", 'syntax error at or near ")"'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect =)", 'syntax error at or near ")"'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect == 1)", 'syntax error at or near "=="'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect false)", 'syntax error at or near "false"'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect,)", 'syntax error at or near ")"'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect", "syntax error at end of input"),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect;", 'syntax error at or near ";"'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (1 = 2)", 'syntax error at or near "1"'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} WITH (connect = - x)", 'syntax error at or near "x"'),
    (f"CREATE SUBSCRIPTION t {CONNECTION} (connect)", 'syntax error at or near "("'),
    ("CREATE SUBSCRIPTION table CONNECTION 'x' PUBLICATION p", 'syntax error at or near "table"'),
    ("CREATE SUBSCRIPTION left CONNECTION 'x' PUBLICATION p", 'syntax error at or near "left"'),
    ("CREATE SUBSCRIPTION a.b CONNECTION 'x' PUBLICATION p", 'syntax error at or near "."'),
    ("CREATE SUBSCRIPTION IF NOT EXISTS t CONNECTION 'x'", 'syntax error at or near "NOT"'),
    ('CREATE SUBSCRIPTION "" CONNECTION \'x\'', 'zero-length delimited identifier at or near """"'),
    ("CREATE SUBSCRIPTION $1 CONNECTION 'x' PUBLICATION p", 'syntax error at or near "$1"'),
    ("CREATE SUBSCRIPTION 1x", 'trailing junk after numeric literal at or near "1x"'),
    ("CREATE SUBSCRIPTION t CONNECTION 'x PUBLICATION p", "unterminated quoted string at or near"
     " \"'x PUBLICATION p\""),
    ('CREATE SUBSCRIPTION "t CONNECTION', 'unterminated quoted identifier at or near "'
     '"t CONNECTION"'),
    ("CREATE SUBSCRIPTION $$ t", 'unterminated dollar-quoted string at or near "$$ t"'),
    ("CREATE /* SUBSCRIPTION", 'unterminated /* comment at or near "/* SUBSCRIPTION"'),
    ("CREATE SUBSCRIPTON t", 'syntax error at or near "SUBSCRIPTON"'),
    ("DROP garbage", 'syntax error at or near "garbage"'),
    ("SUBSCRIPTION t", 'syntax error at or near "SUBSCRIPTION"'),
    ("ALTER SUBSCRIPTION s", "syntax error at end of input"),
    ("ALTER SUBSCRIPTION s FOO", 'syntax error at or near "FOO"'),
    ("ALTER SUBSCRIPTION s ENABLE p", 'syntax error at or near "p"'),
    ("ALTER SUBSCRIPTION s ENABLED", 'syntax error at or near "ENABLED"'),
    ("ALTER SUBSCRIPTION s SET", "syntax error at end of input"),
    ("ALTER SUBSCRIPTION s SET binary = true", 'syntax error at or near "binary"'),
    ("ALTER SUBSCRIPTION s SET ()", 'syntax error at or near ")"'),
    ("ALTER SUBSCRIPTION s SET PUBLICATION", "syntax error at end of input"),
    ("ALTER SUBSCRIPTION s ADD p", 'syntax error at or near "p"'),
    ("ALTER SUBSCRIPTION s DROP TABLE p", 'syntax error at or near "TABLE"'),
    ("ALTER SUBSCRIPTION s CONNECTION", "syntax error at end of input"),
    ("ALTER SUBSCRIPTION s REFRESH", "syntax error at end of input"),
    ("ALTER SUBSCRIPTION s REFRESH SEQUENCES", 'syntax error at or near "SEQUENCES"'),
    ("ALTER SUBSCRIPTION s SKIP", "syntax error at end of input"),
    ("ALTER SUBSCRIPTION s SKIP (lsn = 0/1)", 'syntax error at or near "/"'),
    ("ALTER SUBSCRIPTION s RENAME t", 'syntax error at or near "t"'),
    ("ALTER SUBSCRIPTION s RENAME TO user", 'syntax error at or near "user"'),
    ("ALTER SUBSCRIPTION s OWNER TO", "syntax error at end of input"),
    ("ALTER SUBSCRIPTION IF EXISTS s ENABLE", 'syntax error at or near "EXISTS"'),
    ("DROP SUBSCRIPTION", "syntax error at end of input"),
    ("DROP SUBSCRIPTION s, t", 'syntax error at or near ","'),
    ("DROP SUBSCRIPTION s FORCE", 'syntax error at or near "FORCE"'),
    ("DROP SUBSCRIPTION IF EXISTS", "syntax error at end of input"),
    # Where the place is: lines, tabs, wide and combined characters, long lines.
    ("ALTER\n  SUBSCRIPTION\n  s\n  FOO\n  BAR", 'syntax error at or near "FOO"'),
    ("ALTER\r\nSUBSCRIPTION\ts\r\n\tFOO", 'syntax error at or near "FOO"'),
    ("ALTER SUBSCRIPTION \"日本語 é\" FOO -- 漢字", 'syntax error at or near "FOO"'),
    ("ALTER SUBSCRIPTION e\u0301 FÖÖ", 'syntax error at or near "FÖÖ"'),
    ("ALTER /* a /* b\n */ c */ SUBSCRIPTION s -- x\n FOO", 'syntax error at or near "FOO"'),
    (f"ALTER SUBSCRIPTION \"{'日' * 15}{'a' * 15}\" FOO {'b' * 30}",
     'syntax error at or near "FOO"'),
    (f"ALTER SUBSCRIPTION s FOO {'b' * 60}", 'syntax error at or near "FOO"'),
    (f"ALTER SUBSCRIPTION s ENABLE {'b' * 60} c", f'syntax error at or near "{"b" * 60}"'),
    (f"DROP SUBSCRIPTION \"{'a' * 50}\" {'b' * 20}", f'syntax error at or near "{"b" * 20}"'),
]  # fmt: skip

OPTIONS = [
    # C-1, C-2: which options there are
    ("C-1", f"{OFFLINE}, connect = false)", "42601", "conflicting or redundant options"),
    ("C-1", f"{OFFLINE}, ORIGIN = any, origin = any)", "42601", "conflicting or redundant options"),
    ("C-2", f"{OFFLINE}, nosuch = 1)", "42601", 'unrecognized subscription parameter: "nosuch"'),
    ("C-2", f'{OFFLINE}, "Enabled" = 1)', "42601",
     'unrecognized subscription parameter: "Enabled"'),
    ("C-2", f"{OFFLINE}, refresh = true)", "42601",
     'unrecognized subscription parameter: "refresh"'),
    ("C-2", f"{OFFLINE}, lsn = '0/1')", "42601", 'unrecognized subscription parameter: "lsn"'),
    ("C-2", f"{OFFLINE}, retain_dead_tuples = true)", "42601",
     'unrecognized subscription parameter: "retain_dead_tuples"'),
    # C-3: without a connection
    *(
        ("C-3", f"{OFFLINE}, {name} = true)", "42601",
         f"connect = false and {name} = true are mutually exclusive options")
        for name in ("enabled", "create_slot", "copy_data")
    ),
    # C-4: without a slot; enabled is looked at first
    ("C-4", f"CREATE SUBSCRIPTION t {CONNECTION} WITH (slot_name = NONE)", "42601",
     "subscription with slot_name = NONE must also set enabled = false"),
    ("C-4", f"CREATE SUBSCRIPTION t {CONNECTION} WITH (slot_name = NONE, enabled, create_slot)",
     "42601", "slot_name = NONE and enabled = true are mutually exclusive options"),
    ("C-4", f"CREATE SUBSCRIPTION t {CONNECTION} WITH (slot_name = none, enabled = 0)", "42601",
     "subscription with slot_name = NONE must also set create_slot = false"),
    ("C-4", f"CREATE SUBSCRIPTION t {CONNECTION} WITH (create_slot, enabled = off, slot_name=NONE)",
     "42601", "slot_name = NONE and create_slot = true are mutually exclusive options"),
    # values
    ("C-2", f"{OFFLINE}, slot_name)", "42601", "slot_name requires a parameter"),
    ("C-2", f"{OFFLINE}, slot_name = 'Bad-Name')", "42602",
     'replication slot name "Bad-Name" contains invalid character'),
    ("C-2", f"{OFFLINE}, slot_name = '')", "42602", 'replication slot name "" is too short'),
    ("C-2", f"{OFFLINE}, slot_name = '{LONG}')", "42622",
     f'replication slot name "{LONG}" is too long'),
    ("C-2", f"{OFFLINE}, slot_name = 'NONE')", "42602",
     'replication slot name "NONE" contains invalid character'),
    *(
        ("C-2", f"{OFFLINE}, {name} = maybe)", "42601", f"{name} requires a Boolean value")
        for name in ("enabled", "create_slot", "copy_data", "binary", "two_phase",
                     "disable_on_error", "password_required", "run_as_owner", "failover")
    ),
    ("C-2", f"{OFFLINE}, binary = 2)", "42601", "binary requires a Boolean value"),
    ("C-2", f"{OFFLINE}, binary = -1)", "42601", "binary requires a Boolean value"),
    ("C-2", f"{OFFLINE}, binary = 1.0)", "42601", "binary requires a Boolean value"),
    ("C-2", f"{OFFLINE}, binary = '1')", "42601", "binary requires a Boolean value"),
    ("C-2", f"{OFFLINE}, binary = NONE)", "42601", "binary requires a Boolean value"),
    ("C-2", f"{OFFLINE}, binary = a.b)", "42601", "binary requires a Boolean value"),
    ("C-2", f"{OFFLINE}, binary = select)", "42601", "binary requires a Boolean value"),
    ("C-11", f"{OFFLINE}, origin = some)", "22023", 'unrecognized origin value: "some"'),
    ("C-11", f"{OFFLINE}, origin)", "42601", "origin requires a parameter"),
    ("C-11", f"{OFFLINE}, origin = 1.50)", "22023", 'unrecognized origin value: "1.50"'),
    ("C-12", f"{OFFLINE}, streaming = maybe)", "42601",
     'streaming requires a Boolean value or "parallel"'),
    ("C-12", f"{OFFLINE}, streaming = 2)", "42601",
     'streaming requires a Boolean value or "parallel"'),
    ("C-13", f"{OFFLINE}, synchronous_commit = never)", "22023",
     'invalid value for parameter "synchronous_commit": "never"'),
    ("C-13", f"{OFFLINE}, synchronous_commit = 2)", "22023",
     'invalid value for parameter "synchronous_commit": "2"'),
    ("C-13", f"{OFFLINE}, synchronous_commit)", "42601", "synchronous_commit requires a parameter"),
    # the order of the mistakes is the order of the options
    ("C-2", f"{OFFLINE}, origin = x, nosuch)", "22023", 'unrecognized origin value: "x"'),
    ("C-2", f"{OFFLINE}, nosuch, origin = x)", "42601",
     'unrecognized subscription parameter: "nosuch"'),
    ("C-2", f"{OFFLINE}, enabled, nosuch)", "42601",
     'unrecognized subscription parameter: "nosuch"'),
    ("C-8", f"CREATE SUBSCRIPTION s {CONNECTION} WITH (connect = false)", "42710",
     'subscription "s" already exists'),
    ("C-9", "CREATE SUBSCRIPTION t CONNECTION 'x' PUBLICATION p WITH (connect = false)", "42601",
     "invalid connection string syntax: missing \"=\""),
    ("C-9", "CREATE SUBSCRIPTION t CONNECTION 'nosuch=1' PUBLICATION p WITH (connect = false)",
     "42601", 'invalid connection string syntax: invalid connection option "nosuch"'),
    ("C-10", f"CREATE SUBSCRIPTION t {CONNECTION}, q, P WITH (connect = false)", "42710",
     'publication name "p" used more than once'),
    # the name comes before the options
    ("A-1", "ALTER SUBSCRIPTION t SET (nosuch)", "42704", 'subscription "t" does not exist'),
    ("A-1", "ALTER SUBSCRIPTION t ENABLE", "42704", 'subscription "t" does not exist'),
    ("A-1", "ALTER SUBSCRIPTION t RENAME TO u", "42704", 'subscription "t" does not exist'),
    ("A-1", "ALTER SUBSCRIPTION t OWNER TO CURRENT_USER", "42704",
     'subscription "t" does not exist'),
    ("A-1", "DROP SUBSCRIPTION t", "42704", 'subscription "t" does not exist'),
    ("A-1", 'ALTER SUBSCRIPTION "S" ENABLE', "42704", 'subscription "S" does not exist'),
    ("A-12", "ALTER SUBSCRIPTION s ADD PUBLICATION q, q WITH (refresh = false)", "42710",
     'publication name "q" used more than once'),
    ("A-12", "ALTER SUBSCRIPTION s SET PUBLICATION q, q WITH (refresh = false)", "42710",
     'publication name "q" used more than once'),
    ("A-12", "ALTER SUBSCRIPTION s DROP PUBLICATION q, q WITH (refresh = false)", "42710",
     'publication name "q" used more than once'),
    # positions
    ("A-13", "ALTER SUBSCRIPTION s SKIP (lsn = '0/0')", "22023",
     "invalid WAL location (LSN): 0/0"),
    ("A-13", "ALTER SUBSCRIPTION s SKIP (lsn = 'zz')", "22P02",
     'invalid input syntax for type pg_lsn: "zz"'),
    ("A-13", "ALTER SUBSCRIPTION s SKIP (lsn)", "42601", "lsn requires a parameter"),
    ("A-13", "ALTER SUBSCRIPTION s SKIP (lsn = 1)", "22P02",
     'invalid input syntax for type pg_lsn: "1"'),
    ("A-13", "ALTER SUBSCRIPTION s SKIP (xid = 1)", "42601",
     'unrecognized subscription parameter: "xid"'),
    ("A-13", "ALTER SUBSCRIPTION s SKIP (lsn = '0/1', lsn = '0/2')", "42601",
     "conflicting or redundant options"),
    # which command takes which option
    *(
        ("A-15", f"ALTER SUBSCRIPTION s SET ({name} = true)", "42601",
         f'unrecognized subscription parameter: "{name}"')
        for name in ("connect", "create_slot", "enabled", "copy_data", "refresh", "lsn")
    ),
    ("A-15", "ALTER SUBSCRIPTION s SET (binary, binary)", "42601",
     "conflicting or redundant options"),
    ("A-15", "ALTER SUBSCRIPTION s SET (origin = some)", "22023",
     'unrecognized origin value: "some"'),
    ("A-15", "ALTER SUBSCRIPTION s SET PUBLICATION p WITH (binary)", "42601",
     'unrecognized subscription parameter: "binary"'),
    ("A-15", "ALTER SUBSCRIPTION s DROP PUBLICATION p WITH (refresh = maybe)", "42601",
     "refresh requires a Boolean value"),
    ("A-15", "ALTER SUBSCRIPTION s ADD PUBLICATION q WITH (copy_data = 2)", "42601",
     "copy_data requires a Boolean value"),
]  # fmt: skip
"""(code of the list of errors, statement, SQLSTATE, message or its beginning)."""

IN_A_BLOCK = [
    ("C-5", f"CREATE SUBSCRIPTION t {CONNECTION}",
     "CREATE SUBSCRIPTION ... WITH (create_slot = true) cannot run inside a transaction block"),
    ("D-1", "DROP SUBSCRIPTION with_slot",
     "DROP SUBSCRIPTION cannot run inside a transaction block"),
    ("A-4", "ALTER SUBSCRIPTION with_slot SET (failover = true)",
     "ALTER SUBSCRIPTION ... SET (failover) cannot run inside a transaction block"),
    ("A-4", "ALTER SUBSCRIPTION with_slot SET (two_phase = false)",
     "ALTER SUBSCRIPTION ... SET (two_phase) cannot run inside a transaction block"),
    ("A-11", "ALTER SUBSCRIPTION enabled REFRESH PUBLICATION",
     "ALTER SUBSCRIPTION ... REFRESH cannot run inside a transaction block"),
    ("A-11", "ALTER SUBSCRIPTION enabled SET PUBLICATION q",
     "ALTER SUBSCRIPTION with refresh cannot run inside a transaction block"),
    ("A-11", "ALTER SUBSCRIPTION enabled ADD PUBLICATION q",
     "ALTER SUBSCRIPTION with refresh cannot run inside a transaction block"),
    ("A-11", "ALTER SUBSCRIPTION enabled DROP PUBLICATION r",
     "ALTER SUBSCRIPTION with refresh cannot run inside a transaction block"),
]  # fmt: skip
"""25001 each; ``with_slot`` is disabled and has a slot's name, ``enabled`` is enabled."""

STATE = [
    ("A-2", "ALTER SUBSCRIPTION enabled SET (slot_name = NONE)", "55000",
     "cannot set slot_name = NONE for enabled subscription"),
    ("A-3", "ALTER SUBSCRIPTION enabled SET (failover)", "55000",
     'cannot set option "failover" for enabled subscription'),
    ("A-3", "ALTER SUBSCRIPTION enabled SET (failover = false)", "55000",
     'cannot set option "failover" for enabled subscription'),
    *(
        ("A-3", f"ALTER SUBSCRIPTION enabled SET (two_phase = {value})", "55000",
         'cannot set option "two_phase" for enabled subscription')
        for value in ("false", "true")
    ),
    ("A-4", "ALTER SUBSCRIPTION s SET (failover = false)", "55000",
     'cannot set option "failover" for a subscription that does not have a slot name'),
    ("A-4", "ALTER SUBSCRIPTION s SET (two_phase = false)", "55000",
     'cannot set option "two_phase" for a subscription that does not have a slot name'),
    ("A-4", "ALTER SUBSCRIPTION s SET (two_phase = true, failover = false)", "55000",
     'cannot set option "failover" for a subscription that does not have a slot name'),
    ("A-5", "ALTER SUBSCRIPTION with_slot SET (slot_name = other, two_phase = off)", "42601",
     '"slot_name" and "two_phase" cannot be altered at the same time'),
    ("A-8", "ALTER SUBSCRIPTION s ENABLE", "55000",
     "cannot enable subscription that does not have a slot name"),
    ("A-9", "ALTER SUBSCRIPTION s REFRESH PUBLICATION", "55000",
     "ALTER SUBSCRIPTION ... REFRESH is not allowed for disabled subscriptions"),
    *(
        ("A-9", f"ALTER SUBSCRIPTION with_slot {words}", "55000",
         "ALTER SUBSCRIPTION with refresh is not allowed for disabled subscriptions")
        for words in ("SET PUBLICATION q", "ADD PUBLICATION q", "DROP PUBLICATION r")
    ),
    ("A-12", "ALTER SUBSCRIPTION enabled ADD PUBLICATION q, p", "42710",
     'publication "p" is already in subscription "enabled"'),
    ("A-12", "ALTER SUBSCRIPTION enabled DROP PUBLICATION q", "42P17",
     'publication "q" is not in subscription "enabled"'),
    ("A-12", "ALTER SUBSCRIPTION enabled DROP PUBLICATION r, p", "42P17",
     "cannot drop all the publications from a subscription"),
    ("A-13", "ALTER SUBSCRIPTION s SKIP (lsn = '0/1F3')", "22023",
     "skip WAL location (LSN 0/1F3) must be greater than origin LSN 0/1F4"),
    ("A-14", "ALTER SUBSCRIPTION s CONNECTION 'nosuch=1'", "42601",
     'invalid connection string syntax: invalid connection option "nosuch"'),
    ("C-8", "ALTER SUBSCRIPTION s RENAME TO enabled", "42710",
     'subscription "enabled" already exists'),
    ("A-1", "ALTER SUBSCRIPTION s OWNER TO nobody", "42704", 'role "nobody" does not exist'),
]  # fmt: skip
"""What speaks against it is in the catalog: the commands of ALTER themselves refuse it."""

GOOD = [
    f"{OFFLINE})",
    f"{OFFLINE}, slot_name = NONE, streaming, binary = 0, origin = 'NONE', failover = off)",
    f"{OFFLINE}, synchronous_commit = 'Remote_Write', run_as_owner = 'TRUE', streaming = Parallel)",
    "create subscription between connection E'dbname=\\x78\\u0079' publication \"P\", p, none"
    " with (connect = 0)",
    "CREATE SUBSCRIPTION t CONNECTION 'dbname='\n  -- goes on\n  'x' PUBLICATION p"
    ' WITH (CONNECT = FALSE, "slot_name" = "other");',
    f"CREATE SUBSCRIPTION {LONG} CONNECTION $$dbname=x$$ PUBLICATION p WITH (connect = off)",
    "ALTER SUBSCRIPTION s SET (binary = off, streaming = on, origin = NONE, run_as_owner)",
    "ALTER SUBSCRIPTION s SET (slot_name = other, disable_on_error)",
    "ALTER SUBSCRIPTION s SET (slot_name = none, password_required = 0x1)",
    "ALTER SUBSCRIPTION s CONNECTION 'dbname=elsewhere'",
    "ALTER SUBSCRIPTION s SET PUBLICATION q, p WITH (refresh = false, copy_data)",
    "ALTER SUBSCRIPTION s ADD PUBLICATION q WITH (refresh = off)",
    "ALTER SUBSCRIPTION s SKIP (lsn = '16/B374D848')",
    "ALTER SUBSCRIPTION s SKIP (lsn = none)",
    "ALTER SUBSCRIPTION s DISABLE",
    "ALTER SUBSCRIPTION s RENAME TO if",
    "ALTER SUBSCRIPTION s OWNER TO SESSION_USER",
    "DROP SUBSCRIPTION s CASCADE",
    "DROP SUBSCRIPTION IF EXISTS if RESTRICT",
]
"""Statements that PostgreSQL takes."""
