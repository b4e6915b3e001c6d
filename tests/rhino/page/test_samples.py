from __future__ import annotations

from rhino.page.samples import KEPT, QUERIES_MAX, Batch, Samples
from tests.rhino.page.imagined import load


def test_a_sample_is_what_was_reported_with_the_worst_source() -> None:
    samples = Samples()
    samples.logged(load(7), 1000)
    course = samples.courses[load(7).job]
    assert list(course.batches) == [Batch(1000, 7, 0.5, 2.0, 500, 700.0)]
    assert course.imbalance == load(7).imbalance
    assert not course.restarts, "the first run is none"


def test_another_run_is_a_restart() -> None:
    samples = Samples()
    for number, run in enumerate(("r1", "r1", "r2", "r2", "r3")):
        samples.logged(load(number, run_id=run), 1000 + number)
    assert list(samples.courses[load(0).job].restarts) == [(1002, "r2"), (1004, "r3")]


def test_samples_and_queries_are_bounded_and_the_silent_one_goes_first() -> None:
    samples = Samples()
    for number in range(KEPT + 30):
        samples.logged(load(number, job_id="busy"), number)
        samples.looked({"busy": number}, number)
    assert [batch.batch_id for batch in samples.courses["busy"].batches] == list(range(30, KEPT + 30))
    assert len(samples.courses["busy"].copies_behind) == KEPT
    samples.logged(load(1, job_id="silent"), 1)
    for number in range(QUERIES_MAX - 1):
        samples.logged(load(1, job_id=f"job-{number}"), 1)
        samples.looked({"busy": 0}, 1)
    assert len(samples.courses) == QUERIES_MAX
    assert "busy" in samples.courses
    assert "silent" not in samples.courses
