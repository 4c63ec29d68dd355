from __future__ import annotations

from tests.soak.meter import FLAT, Sample, growth, not_flat


def samples(**last: float) -> list[Sample]:
    """An hour in which all stay at 100, but for those that end at ``last`` in a straight line."""
    made = []
    for minute in range(61):
        measures = dict.fromkeys(FLAT, 100.0)
        grown = {name: 100 + (end - 100) * minute / 60 for name, end in last.items()}
        made.append({"at": minute * 60.0, "transactions": minute * 1e4, **measures, **grown})
    return made


def test_what_stays_is_flat() -> None:
    assert not_flat(growth(samples())) == []


def test_what_grows_is_told() -> None:
    grown = {"apply_mb": 200.0, "branches": 300.0, "metadata_mb": 250.0}
    assert not_flat(growth(samples(**grown))) == list(grown)


def test_what_is_near_zero_may_wander() -> None:
    found = growth([sample | {"spool_mb": sample["at"] / 1000} for sample in samples()])
    assert not_flat(found) == []
