"""Tables whose columns and names change while their rows do, in a schema and publication of their
own: no native subscriber follows them, and so the publisher is the oracle.

=======  ==============================================================================
``alt``  key, values out of line
``alf``  REPLICA IDENTITY FULL, no key, equal rows
``alp``  partitioned, with a key
=======  ==============================================================================

Whether a statement takes effect is not known here: a lock may be in the way, and a transaction may
be undone. So a statement has a kind and a number only, and functions on the publisher choose the
table's name, the columns and the values among those that are there by then.
"""

from __future__ import annotations

import random
from typing import Final

ALTERED: Final = ("alt", "alf", "alp")

KINDS: Final = (
    "add",
    "add",
    "default",
    "default",
    "volatile",
    "drop",
    "drop",
    "rename",
    "rename",
    "again",
    "other again",
    "take",
    "swap",
    "widen",
    "compute",
    "retype",
    "name",
    "there and back",
    "truncate",
)
"""What ``alter`` does; what is there twice comes twice as often."""

_COMPUTED: Final = ("compute", "retype")
"""Other values in all rows. By looking, they cannot be told from a widened type that comes behind
them before the next look, so a seed has either."""

_KEYS: Final = 40

_TABLES: Final = """
CREATE TABLE {d}.alt (id int PRIMARY KEY, n int, note text, at timestamptz);
ALTER TABLE {d}.alt ALTER note SET STORAGE EXTERNAL;
CREATE TABLE {d}.alf (id int, n int, note text);
ALTER TABLE {d}.alf ALTER note SET STORAGE EXTERNAL;
ALTER TABLE {d}.alf REPLICA IDENTITY FULL;
CREATE TABLE {d}.alp (id int PRIMARY KEY, n int, w text) PARTITION BY RANGE (id);
CREATE TABLE {d}.alp_1 PARTITION OF {d}.alp FOR VALUES FROM (MINVALUE) TO (20);
CREATE TABLE {d}.alp_2 PARTITION OF {d}.alp FOR VALUES FROM (20) TO (MAXVALUE);
INSERT INTO {d}.alt SELECT i, i, repeat('n', 2500) || i, now() FROM generate_series(1, 30) i;
INSERT INTO {d}.alf SELECT i % 10, i % 3, NULL FROM generate_series(1, 30) i;
INSERT INTO {d}.alp SELECT i, i, 'p' || i FROM generate_series(1, 30) i
"""

_FUNCTIONS: Final = (
    """
CREATE FUNCTION {d}.found(name text) RETURNS regclass LANGUAGE sql AS $$
  SELECT oid::regclass FROM pg_class
   WHERE relnamespace = '{d}'::regnamespace AND relname IN (name, name || '_away')
$$""",
    """
CREATE FUNCTION {d}.fields(rel regclass, OUT name text, OUT type text, OUT at int)
RETURNS SETOF record LANGUAGE sql AS $$
  SELECT quote_ident(attname), format_type(atttypid, atttypmod), attnum::int FROM pg_attribute
   WHERE attrelid = rel AND attnum > 0 AND NOT attisdropped AND attname <> 'id'
$$""",
    """
CREATE FUNCTION {d}.chosen(rel regclass, typed text, n int) RETURNS text LANGUAGE sql AS $$
  SELECT name FROM {d}.fields(rel) WHERE typed IN ('', type) ORDER BY md5(name || n) LIMIT 1
$$""",
    """
CREATE FUNCTION {d}.value(typed text, n int) RETURNS text LANGUAGE sql AS $$
  SELECT CASE typed
    WHEN 'integer' THEN n::text
    WHEN 'bigint' THEN n || '0000000000'
    WHEN 'numeric(12,2)' THEN n || '.25'
    WHEN 'timestamp with time zone'
      THEN quote_literal('2020-01-01 00:00:00+02'::timestamptz + n * interval '1 minute')
    WHEN 'text' THEN (ARRAY['NULL', quote_literal('t' || n), quote_literal(repeat('x', 2500) || n)])
                     [1 + n % 3]
    ELSE 'NULL' END
$$""",
    """
CREATE FUNCTION {d}.touch(table_name text, key int, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE rel regclass := {d}.found(table_name); names text; given text; one text; other text;
BEGIN
  SELECT string_agg(', ' || name, '' ORDER BY at),
         string_agg(', ' || {d}.value(type, n + at), '' ORDER BY at)
    INTO names, given FROM {d}.fields(rel);
  SELECT name, {d}.value(type, n) INTO one, other
    FROM {d}.fields(rel) ORDER BY md5(name || n) LIMIT 1;
  CASE
    WHEN n % 6 < 2 THEN
      EXECUTE format('INSERT INTO %s (id%s) VALUES (%s%s) ON CONFLICT DO NOTHING',
                     rel, names, key, given);
    WHEN n % 6 < 4 THEN
      EXECUTE format('UPDATE %s SET %s = %s WHERE id = %s', rel, one, other, key);
    WHEN n % 6 = 4 THEN
      EXECUTE format('UPDATE %1$s SET id = %2$s WHERE id = %3$s'
                     ' AND NOT EXISTS (SELECT FROM %1$s WHERE id = %2$s)', rel, 1 + n % 40, key);
    ELSE
      EXECUTE format('DELETE FROM %s WHERE id = %s', rel, key);
  END CASE;
END $$""",
    """
CREATE FUNCTION {d}.alter(table_name text, kind text, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  rel regclass := {d}.found(table_name);
  was text := (SELECT relname FROM pg_class WHERE oid = rel);
  becomes text := CASE was WHEN table_name THEN table_name || '_away' ELSE table_name END;
  width int := (SELECT count(*) FROM {d}.fields(rel));
  one text := {d}.chosen(rel, '', n);
  other text := (SELECT name FROM {d}.fields(rel) WHERE name <> one
                 ORDER BY md5(name || n) LIMIT 1);
  type_of_one text := (SELECT type FROM {d}.fields(rel) WHERE name = one);
  whole text := {d}.chosen(rel, 'integer', n);
  change text := 'ALTER TABLE ' || rel || ' ';
BEGIN
  IF width > 6 AND kind IN ('add', 'default', 'volatile') THEN kind := 'drop'; END IF;
  IF width < 3 AND kind IN ('drop', 'take') THEN kind := 'add'; END IF;
  IF whole IS NULL AND kind IN ('widen', 'compute') THEN kind := 'add'; END IF;
  CASE kind
    WHEN 'add' THEN
      EXECUTE change || format('ADD c%s %s', n,
        (ARRAY['int', 'text STORAGE EXTERNAL', 'numeric(12,2)', 'timestamptz'])[1 + n % 4]);
    WHEN 'default' THEN
      EXECUTE change || format('ADD c%s %s', n,
        (ARRAY['int DEFAULT ' || n, 'text DEFAULT ''d''', 'timestamptz DEFAULT now()'])[1 + n % 3]);
    WHEN 'volatile' THEN EXECUTE change || format('ADD c%s int DEFAULT (random() * 1000)::int', n);
    WHEN 'drop' THEN EXECUTE change || 'DROP ' || one;
    WHEN 'rename' THEN EXECUTE change || format('RENAME %s TO r%s', one, n);
    WHEN 'again' THEN EXECUTE change || format('DROP %s, ADD %s %s', one, one, type_of_one);
    WHEN 'other again' THEN
      EXECUTE change || 'DROP ' || one;
      EXECUTE change || format('ADD %s bigint DEFAULT %s', one, n);
    WHEN 'take' THEN
      EXECUTE change || 'DROP ' || one;
      EXECUTE change || format('RENAME %s TO %s', other, one);
    WHEN 'swap' THEN
      EXECUTE change || format('RENAME %s TO between_two', one);
      EXECUTE change || format('RENAME %s TO %s', other, one);
      EXECUTE change || format('RENAME between_two TO %s', other);
    WHEN 'widen' THEN EXECUTE change || format('ALTER %s TYPE bigint', whole);
    WHEN 'compute' THEN EXECUTE change || format('ALTER %s TYPE int USING %s + 1', whole, whole);
    WHEN 'retype' THEN
      EXECUTE change || format('ALTER %s DROP DEFAULT', one);
      EXECUTE change || format(CASE type_of_one
        WHEN 'text' THEN 'ALTER %s TYPE int USING length(%s)'
        ELSE 'ALTER %s TYPE text USING ''u'' || %s' END, one, one);
    WHEN 'name' THEN EXECUTE change || 'RENAME TO ' || becomes;
    WHEN 'home' THEN
      IF was <> table_name THEN EXECUTE change || 'RENAME TO ' || table_name; END IF;
    WHEN 'there and back' THEN
      EXECUTE change || 'RENAME TO between_two';
      EXECUTE format('ALTER TABLE {d}.between_two RENAME TO %s', was);
    WHEN 'truncate' THEN EXECUTE 'TRUNCATE ' || rel;
  END CASE;
END $$""",
)


def schema_of(schema: str) -> str:
    """The schema of the altered tables beside that of the other tables."""
    return f"{schema}_ddl"


def create_altered(schema: str) -> list[str]:
    """The tables with their first rows, and the functions that change them."""
    d = schema_of(schema)
    tables = [part.strip() for part in _TABLES.replace("{d}", d).split(";")]
    functions = [each.replace("{d}", d) for each in _FUNCTIONS]
    return [f"CREATE SCHEMA {d}", *tables, *functions]


class Alterations:
    """The statements of a seed that change the altered tables; with draws of their own.

    ``captured``: triggers tell what happened.
    """

    def __init__(self, seed: int, schema: str, *, captured: bool = True) -> None:
        self._random = random.Random(f"ddl {seed}")
        leaves_out = self._random.choice((_COMPUTED, ("widen",)))
        self._kinds = [each for each in KINDS if captured or each not in leaves_out]
        self._schema = schema_of(schema)
        self._number = 0

    def is_next(self) -> bool:
        """Is the next transaction one of these?"""
        return self._random.random() < 0.2

    def rows(self) -> list[str]:
        """Changes of rows alone, for a transaction that changes other tables; often none."""
        return [self._touch() for _ in range(self._random.choice((0, 0, 1, 2)))]

    def body(self) -> list[str]:
        """Changes of columns among changes of rows, with or without a savepoint."""
        body = self._rows()
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 3))):
            body += self._undone() if self._random.random() < 0.2 else self._change()
        return body

    def last(self, *, home: bool) -> list[str]:
        """A change of each table: a change of columns that sends nothing is noticed behind it.

        ``home``: the tables have their first names again. A table that is renamed while it is
        copied is copied under the new name after a refresh only.
        """
        names = [f"SELECT {self._schema}.alter('{table}', 'home', 0)" for table in ALTERED]
        touches = [
            f"SELECT {self._schema}.touch('{table}', {key}, 0)"
            for table in ALTERED
            for key in (_KEYS + 1, -1)  # one in each partition
        ]
        return [*(names if home else []), *touches]

    def _change(self) -> list[str]:
        table, kind = self._random.choice(ALTERED), self._random.choice(self._kinds)
        alter = f"SELECT {self._schema}.alter('{table}', '{kind}', {self._next()})"
        return [alter, *self._rows()]

    def _undone(self) -> list[str]:
        verb = self._random.choice(("ROLLBACK TO", "RELEASE"))
        return ["SAVEPOINT ddl", *self._change(), f"{verb} SAVEPOINT ddl", *self._rows()]

    def _rows(self) -> list[str]:
        return [self._touch() for _ in range(self._random.choice((0, 1, 1, 2, 4)))]

    def _touch(self) -> str:
        table, key = self._random.choice(ALTERED), self._random.randint(1, _KEYS)
        return f"SELECT {self._schema}.touch('{table}', {key}, {self._next()})"

    def _next(self) -> int:
        self._number += 1
        return self._number
