"""The data of a supernet, read again from what its record says."""

from types import SimpleNamespace

import pytest

from ldsearch import recorded
from ldsearch.tasks import EMBEDDED, DataSource, load_task


@pytest.mark.parametrize(
    ("source", "search_rows"),
    [
        ({"data": EMBEDDED}, "auto"),
        ({"data": "reviews.csv"}, "half"),  # before it was recorded
        ({"data": "reviews.csv", "search_rows": "train"}, "train"),
    ],
)
def test_the_split_rule_that_is_not_recorded_is_the_one_of_its_day(monkeypatch, source, search_rows):
    asked = []
    monkeypatch.setattr(
        recorded, "load_task", lambda kind, data, labels: asked.append(data) or SimpleNamespace(splits={})
    )
    recorded.load_recorded_task(SimpleNamespace(source=source, labels=[], splits={}), None)
    assert asked == [DataSource(source["data"], search_rows=search_rows)]


def test_embedded_data_open_again_by_their_record():
    task = load_task("classification", DataSource(EMBEDDED), None)
    record = SimpleNamespace(source=dict(task.source), labels=list(task.labels), splits={})
    again = recorded.load_recorded_task(record, None)
    assert again.splits["search"].fingerprint == task.splits["search"].fingerprint
