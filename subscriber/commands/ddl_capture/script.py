"""The SQL to install event triggers on a publisher, and to remove the triggers.

One function serves three event triggers, in schema ``pgsub``::

    table_rewrite     notes, for the rest of the transaction, new values of rows
    ddl_command_end   emits the shape of each changed table, and of the tables that inherit
    sql_drop          emits the shape of each table without a column of a dropped type

The message is transactional: a command without effect, rolled back, leaves no message. The shape is
the answer to the questions of a worker (``workers/publisher/queries.sql``), so message and answer
are read alike. The function reads catalogs alone, and has a fixed ``search_path``.

Any role may emit logical messages. So a message begins with a digest of a key and the content
(``workers.changes.captured_shape``). The key is in a materialized view: no publication has one, and
a standby and a backup do. The function runs as its owner, to read the key, and roles for
replication may read the key as well: such a role may read all published rows. Without the key, as
behind a restore of schemas alone, the function does nothing.

The text of a command tells if values may be others under a type that holds more (USING). A command
inside a function has its text in the call stack; without a text the answer is yes.
"""

from __future__ import annotations

from typing import Final

from workers.proto.message_rows import DDL_PREFIX
from workers.publisher.queries import query
from workers.publisher.table_shape import DDL_TRIGGERS

SCHEMA: Final = "pgsub"
FUNCTION: Final = f"{SCHEMA}.capture_ddl"

_NEW_VALUES: Final = 6
"""Bits of a rewriting's reason: a default was computed (2), a column has another type (4)."""

_SETTINGS: Final = (
    "SET search_path = pg_catalog, pg_temp SET datestyle = ISO SET intervalstyle = postgres"
    " SET extra_float_digits = 3 SET timezone = UTC SET bytea_output = hex"
)
"""Stored defaults have the text of a worker's connection."""

_BODY: Final = """
DECLARE
    changed oid;
    body text;
    key text;
    command text;
    rewritten text[] := string_to_array(current_setting('pgsub.rewritten', true), ' ');
BEGIN
    IF tg_event = 'table_rewrite' THEN
        PERFORM set_config('pgsub.rewritten', array_to_string(rewritten || concat(
            pg_event_trigger_table_rewrite_oid(), ':', pg_event_trigger_table_rewrite_reason()
        ), ' '), true);
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = '{schema}' AND c.relname = 'ddl_key' AND c.relispopulated)
    THEN
        RETURN;
    END IF;
    SELECT k.key INTO key FROM {schema}.ddl_key k;
    GET DIAGNOSTICS command = PG_CONTEXT;
    command := substr(command, nullif(strpos(command, E'\n'), 0));
    command := coalesce(command, current_query());
    FOR changed IN EXECUTE 'WITH RECURSIVE tables (oid) AS (SELECT objid FROM '
        || CASE tg_event
        WHEN 'sql_drop' THEN
            'pg_event_trigger_dropped_objects()'
            ' WHERE classid = ''pg_class''::regclass AND objsubid <> 0'
        ELSE
            'pg_event_trigger_ddl_commands()'
            ' WHERE classid = ''pg_class''::regclass AND object_type LIKE ''table%'' '
        END
        || ' UNION SELECT i.inhrelid FROM pg_inherits i JOIN tables t ON t.oid = i.inhparent'
           ' JOIN pg_class c ON c.oid = i.inhrelid WHERE NOT c.relispartition'
           ' OR EXISTS (SELECT FROM pg_publication WHERE NOT pubviaroot)) SELECT oid FROM tables'
    LOOP
        SELECT json_build_object(
            'version', 1,
            'xid', txid_current() & 4294967295,
            'relid', changed::int8,
            'rewritten', (SELECT coalesce(bit_or(split_part(r, ':', 2)::int & {new_values}), 0)
                FROM unnest(rewritten) r
                WHERE split_part(r, ':', 1) IN ({tree} SELECT oid::text FROM tree)),
            'using', command !~* '\\yalter\\y' OR command ~* '\\yusing\\y',
            'columns', (SELECT json_agg(json_build_array(
                s.attnum, s.attname, s.atttypid::int8, s.atttypmod, s.attisdropped, s.computed,
                s.relations, s.files, s.lists, s.version::text, s.stored) ORDER BY s.attnum)
                FROM ({shape}) s (attnum, attname, atttypid, atttypmod, attisdropped, computed,
                                  relations, files, lists, version, stored)),
            'types', coalesce((SELECT json_agg(json_build_array(
                s.oid::int8, s.nspname, s.typname, s.typtype, s.basetype::int8, s.typtypmod,
                s.element::int8, s.delimiter))
                FROM ({types}) s (oid, nspname, typname, typtype, basetype, typtypmod, element,
                                  delimiter)), '[]'),
            'lists', coalesce((SELECT json_agg(json_build_array(p.pubname, pr.oid::int8,
                pr.oid::text || '/' || pr.xmin::text
                || CASE WHEN to_jsonb(pr)->>'prattrs' IS NULL THEN '' ELSE '*' END))
                FROM pg_publication_rel pr
                JOIN pg_publication p ON p.oid = pr.prpubid
                WHERE current_setting('server_version_num')::int >= 150000
                  AND (pr.prrelid = changed
                    OR pr.prrelid IN (SELECT relid FROM pg_partition_ancestors(changed)))), '[]')
            )::text INTO body
        FROM pg_class c
        WHERE c.oid = changed AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p';
        CONTINUE WHEN body IS NULL;
        PERFORM pg_logical_emit_message(true, '{prefix}', convert_to(encode(sha256(convert_to(
            key || encode(sha256(convert_to(key || body, encoding)), 'hex'), encoding)), 'hex')
            || body, encoding))
        FROM (SELECT CASE WHEN getdatabaseencoding() IN ('SQL_ASCII', 'MULE_INTERNAL')
                     THEN getdatabaseencoding() ELSE 'UTF8' END) e (encoding);
    END LOOP;
    IF tg_event = 'ddl_command_end' THEN
        PERFORM set_config('pgsub.rewritten', '', true);
    END IF;
END
"""

_OWNED: Final = f"""DO $pgsub$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace
               WHERE nspname = '{SCHEMA}' AND nspowner <> current_user::pg_catalog.regrole) THEN
        RAISE insufficient_privilege USING MESSAGE = 'schema "{SCHEMA}" belongs to another role';
    END IF;
END
$pgsub$;"""
"""Another role could have made the function, or the key."""

_MAY_READ: Final = f"""DO $pgsub$
DECLARE
    reader name;
BEGIN
    FOR reader IN
        SELECT rolname FROM pg_catalog.pg_roles WHERE rolreplication OR oid IN (
            SELECT m.member FROM pg_catalog.pg_auth_members m
            JOIN pg_catalog.pg_roles r ON r.oid = m.roleid AND r.rolname = 'rds_replication')
    LOOP
        EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA {SCHEMA} TO %I', reader);
        EXECUTE pg_catalog.format('GRANT SELECT ON {SCHEMA}.ddl_key TO %I', reader);
    END LOOP;
END
$pgsub$;"""  # noqa: S608  the schema is a constant


def install_script() -> str:
    """The SQL to install, also over an earlier installation."""
    shape = query(
        "shape",
        relid="changed",
        tree=query("tree", relid="changed"),
        lists="NULL::text",
        computed=query("computed_12"),
        stored=query("stored_11"),
    )
    columns = (
        "SELECT a.atttypid FROM pg_catalog.pg_attribute a WHERE a.attrelid = changed"
        " AND a.attnum > 0 AND NOT a.attisdropped"
    )
    body = _BODY.format(
        schema=SCHEMA,
        new_values=_NEW_VALUES,
        prefix=DDL_PREFIX,
        tree=query("tree", relid="changed"),
        shape=shape,
        types=query("types", types=columns),
    )
    random = "pg_catalog.gen_random_uuid()::text"
    made = [
        _OWNED,
        f"CREATE SCHEMA IF NOT EXISTS {SCHEMA};",
        f"CREATE MATERIALIZED VIEW IF NOT EXISTS {SCHEMA}.ddl_key AS"
        f" SELECT {random} || {random} AS key;",
        f"REVOKE ALL ON {SCHEMA}.ddl_key FROM PUBLIC;",
        _MAY_READ,
        f"CREATE OR REPLACE FUNCTION {FUNCTION}() RETURNS event_trigger LANGUAGE plpgsql"
        f" SECURITY DEFINER {_SETTINGS} AS $pgsub${body}$pgsub$;",
    ]
    for name, event in DDL_TRIGGERS.items():
        made.append(f"DROP EVENT TRIGGER IF EXISTS {name};")
        made.append(f"CREATE EVENT TRIGGER {name} ON {event} EXECUTE FUNCTION {FUNCTION}();")
        # ALWAYS: also for commands of a session with session_replication_role = replica.
        made.append(f"ALTER EVENT TRIGGER {name} ENABLE ALWAYS;")
    return "\n".join(["BEGIN;", *made, "COMMIT;"]) + "\n"


def uninstall_script() -> str:
    """The SQL to remove the triggers, the function and the schema."""
    dropped = [f"DROP EVENT TRIGGER IF EXISTS {name};" for name in DDL_TRIGGERS]
    dropped += [
        f"DROP FUNCTION IF EXISTS {FUNCTION}();",
        f"DROP MATERIALIZED VIEW IF EXISTS {SCHEMA}.ddl_key;",
        f"DROP SCHEMA IF EXISTS {SCHEMA};",
    ]
    return "\n".join(["BEGIN;", *dropped, "COMMIT;"]) + "\n"
