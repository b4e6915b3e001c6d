"""The API server of the harness."""

from __future__ import annotations

import pytest

from tests.kubernetes.api import Objects, matches, patch


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("role=executor", True),
        ("role=driver", False),
        ("role!=driver,app==counts", True),
        ("role in (driver, executor),app", True),
        ("role in (driver)", False),
        ("other", False),
    ],
)
def test_selectors(selector: str, expected: bool) -> None:
    assert matches({"metadata": {"labels": {"role": "executor", "app": "counts"}}}, selector) == expected


def test_patches() -> None:
    one = {"metadata": {"labels": {"a": "1"}}, "spec": {"x": 1}}
    patch(one, {"metadata": {"labels": {"b": "2"}}, "spec": {"x": None}})
    assert one == {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {}}
    patch(one, [{"op": "add", "path": "/metadata/labels/x~1y", "value": "3"}, {"op": "remove", "path": "/spec"}])
    assert one == {"metadata": {"labels": {"a": "1", "b": "2", "x/y": "3"}}}


def test_what_an_object_owns_goes_with_it() -> None:
    objects = Objects()
    driver = objects.create("pods", {"metadata": {"name": "driver"}, "spec": {}})
    assert driver is not None
    owners = [{"name": "driver", "uid": driver["metadata"]["uid"]}]
    objects.create("pods", {"metadata": {"name": "executor", "ownerReferences": owners}, "spec": {}})
    objects.create("configmaps", {"metadata": {"name": "conf", "ownerReferences": owners}})
    objects.create("configmaps", {"metadata": {"name": "other"}})
    objects.delete("pods", "driver")
    assert [one["metadata"]["name"] for kind in ("pods", "configmaps") for one in objects.list(kind)] == ["other"]


def test_a_watch_tells_all_changes_since_a_version() -> None:
    objects = Objects()
    objects.create("configmaps", {"metadata": {"name": "first"}})
    since = objects.version
    objects.create("configmaps", {"metadata": {"name": "second"}})
    objects.update("configmaps", "first", lambda one: one.update(data={"a": "1"}))
    objects.delete("configmaps", "second")
    events = objects.watch("configmaps", "", "", since)
    told = [next(events) for _ in range(3)]
    assert [(event.type, event.object["metadata"]["name"]) for event in told if event] == [
        ("ADDED", "second"),
        ("MODIFIED", "first"),
        ("DELETED", "second"),
    ]
