import pytest

from catalog.errcodes import ConfigFileError
from catalog.pg_subscription import TableOptions
from config.load import parse


def tables_of(tables: str) -> dict[str, TableOptions]:
    text = f"subscriptions:\n  mysub:\n    connection: host=db\n    publication: [pub]\n{tables}"
    return parse(text, "f.yaml").subscriptions[0].tables


def refused(tables: str) -> ConfigFileError:
    with pytest.raises(ConfigFileError) as caught:
        tables_of(f"    tables: {tables}\n")
    return caught.value


def test_tables() -> None:
    tables = tables_of(
        """\
    tables:
      public.orders: {to: Sales."or.ders", adopt: true, defaults: {note: "'local'"}}
      '"public".b': {on_unrepresentable: null, on_key_conflict: overwrite}
      public.c: {keys: [[a, b], [c]], on_error: suspend}
      public.d: {generated: {total: price * amount}}
      public.e: {columns: {ID: {to: id_2}, "tags.element": {to: "tags element"},
        ssn: {exclude: true}, m: {mask: null}, k: {to: kk, mask: keyed-hash, mask_key_env: K},
        s: {mask: sha256}, n: {type: "decimal(38, 9)"}, j: {to: jj, type: string}}}
      public.g: {writer: spark}
      public.f: {partition_by: [days(at), "bucket(4, id)"], sort_by: [id DESC], location: s3://b/f,
        properties: {write.parquet.compression-codec: gzip}}
"""
    )
    assert tables == {
        "public.orders": TableOptions(
            to=("Sales", "or.ders"), adopt=True, defaults=(("note", "'local'"),)
        ),
        "public.b": TableOptions(on_key_conflict="overwrite", on_unrepresentable="null"),
        "public.c": TableOptions(keys=(("a", "b"), ("c",)), on_error="suspend"),
        "public.d": TableOptions(generated=(("total", "price * amount"),)),
        "public.e": TableOptions(
            columns=(("ID", "id_2"), ("tags.element", "tags element"), ("k", "kk"), ("j", "jj")),
            types=(("n", "decimal(38,9)"), ("j", "string")),
            excluded=("ssn",),
            masks=(("m", "null", ""), ("k", "keyed-hash", "K"), ("s", "sha256", "")),
        ),
        "public.g": TableOptions(writer="spark"),
        "public.f": TableOptions(
            partition_by=("days(at)", "bucket(4, id)"),
            sort_by=("id DESC",),
            location="s3://b/f",
            properties=(("write.parquet.compression-codec", "gzip"),),
        ),
    }


@pytest.mark.parametrize(
    ("tables", "sqlstate", "said"),
    [
        ("{orders: {}}", "42602", "invalid table name"),
        ("{a.b: {to: c}}", "42602", "invalid table name"),
        ("{a.b: {to: pg_catalog.b}}", "42501", 'permission denied to create "pg_catalog.b"'),
        ("{a.b: {}, '\"a\".b': {}}", "42601", "named twice"),
        ("{a.b: {to: x.y}, a.c: {to: x.y}}", "42P07", "both mapped to lake table"),
        ("{a.b: {to: x.y, shared: true}, a.c: {to: x.y}}", "42P07", "both mapped to lake table"),
        ("{a.b: {to: a.c}, a.c: {}}", "42P07", "both mapped to lake table"),
        ("{a.b: {on_key_conflict: ignore}}", "F0000", "on_key_conflict"),
        ("{a.b: {on_error: ignore}}", "F0000", "on_error"),
        ("{a.b: {on_key_conflict: overwrite, keys: [[c]]}}", "42601", "mutually exclusive"),
        ("{a.b: {keys: [[c, d, c]]}}", "42701", 'column "c" appears twice'),
        ("{a.b: {defaults: {c: '1'}, generated: {c: d}}}", "42601", "both default and generation"),
        ("{a.b: {keys: [[]]}}", "F0000", "keys"),
        (
            "{a.b: {partition_by: [zorder(c)]}}",
            "42601",
            'in partition_by: "zorder(c)"',
        ),
        ("{a.b: {sort_by: [c up]}}", "42601", 'invalid entry in sort_by: "c up"'),
        ("{a.b: {sort_by: [c, c ASC]}}", "42701", 'column "c" appears twice in sort_by'),
        ("{a.b: {location: folder}}", "22023", 'invalid value for location: "folder"'),
        ("{a.b: {properties: {pgsub.owner: x}}}", "22023", 'property "pgsub.owner"'),
        ("{a.b: {properties: {engine.hive.lock-enabled: x}}}", "22023", "engine.hive.lock"),
        ("{a.b: {properties: {write.merge.mode: x}}}", "22023", 'property "write.merge.mode"'),
        ("{a.b: {columns: {c: {to: x}, d: {to: x}}}}", "42701", 'column "x" is named twice'),
        ("{a.b: {columns: {c: {to: x}}, defaults: {x: '1'}}}", "42701", "is named twice"),
        ("{a.b: {columns: {c: {to: ''}}}}", "F0000", "must not be empty"),
        ("{a.b: {columns: {c: x}}}", "F0000", "columns.c"),
        ("{a.b: {columns: {c: {}}}}", "42601", 'column "c" has no rule'),
        ("{a.b: {columns: {c: {exclude: false}}}}", "42601", 'column "c" has no rule'),
        ("{a.b: {columns: {c: {to: d, exclude: true}}}}", "42601", "to and exclude are mutually"),
        ("{a.b: {columns: {c: {exclude: true}}, keys: [[c]]}}", "22023", "a key cannot be"),
        ("{a.b: {columns: {c: {mask: md5}}}}", "F0000", "columns.c"),
        ("{a.b: {columns: {c: {mask: keyed-hash}}}}", "42601", "need each other"),
        ("{a.b: {columns: {c: {mask: sha256, mask_key_env: K}}}}", "42601", "need each other"),
        (
            "{a.b: {columns: {c: {mask: keyed-hash, mask_key_env: 'a key'}}}}",
            "22023",
            'mask_key_env of column "c" is no name',
        ),
        ("{a.b: {columns: {c: {type: money}}}}", "42704", 'type "money" does not exist'),
        ("{a.b: {columns: {c: {type: variant}}}}", "0A000", "cannot be of type variant"),
        ("{a.b: {columns: {c: {type: string, mask: sha256}}}}", "42601", "type and mask are"),
        ("{a.b: {columns: {c: {type: string, exclude: true}}}}", "42601", "type and exclude are"),
        ("{a.b: {columns: {c: {mask: null, exclude: true}}}}", "42601", "mask and exclude are"),
        ("{a.b: {columns: {c: {mask: sha256}}, keys: [[c]]}}", "22023", "a key cannot be masked"),
        ("{a.b: {columns: {c: {exclude: true}}, sort_by: [c]}}", "42703", "sort_by is excluded"),
    ],
)
def test_refused_tables(tables: str, sqlstate: str, said: str) -> None:
    error = refused(tables)
    assert error.code == sqlstate
    assert said in error.primary


def test_tables_that_share_a_lake_table() -> None:
    spec = "{a.b: {to: x.y, shared: true}, a.c: {to: x.y, shared: true}, x.y: {shared: true}}"
    options = tables_of(f"    tables: {spec}\n").values()
    assert {one.shared for one in options} == {True}
