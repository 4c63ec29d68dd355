"""The counters have a column for each conflict."""

from dataclasses import fields

from catalog.pg_stat_subscription_stats import ColumnChangeKind, ConflictType, SubscriptionStats


def test_each_conflict_has_a_column_in_postgresql_s_order() -> None:
    names = [field.name for field in fields(SubscriptionStats)]
    assert [name for name in names if name.startswith("confl_")] == [
        kind.column for kind in ConflictType
    ]
    assert names[:3] == ["subid", "apply_error_count", "sync_error_count"]
    assert names[-7:] == [
        "stats_reset",
        "suspension_count",
        "schema_change_count",
        *(kind.column for kind in ColumnChangeKind),
    ]


def test_counting_begins_at_zero() -> None:
    stats = SubscriptionStats(16406)
    assert {getattr(stats, kind.column) for kind in ConflictType} == {0}
    assert stats.stats_reset is None
