from __future__ import annotations

from pathlib import Path
from random import Random

from rhino_core.witnesses.acceptor import Acceptor, Reply, Save, Stored
from rhino_core.witnesses.messages import Append, Position, Promise, Record, Request, Snapshot
from tests.simulation.witness.disk import Disk as Model
from worker_runtime.storage.disk.disk import Disk
from worker_runtime.storage.index.index import Index
from worker_runtime.storage.index.witnessed import WitnessTable


def opened(path: Path) -> Index:
    (path / "index").mkdir(exist_ok=True)
    return Index(path / "index", Disk(path, 0))


def a_request(random: Random, stored: Stored) -> Request:
    """A promise, or an append by a leader whose log begins somewhere in that of the witness, or behind a snapshot."""
    generation = stored.promised + random.randrange(2)
    if random.random() < 0.2:
        return Promise("c", generation + 1, "m")
    base, count = stored.snapshot.last.index, len(stored.records)
    records = tuple(_record(random, generation) for _ in range(random.randrange(4)))
    if random.random() < 0.1:
        last = Position(generation, base + count + random.randrange(1, 9))
        snapshot = Snapshot(last, {"s": b"%d" % generation}, ("x", "y"))
        return Append("c", generation, "m", last, records, last.index, 0.0, snapshot)
    at = random.randint(0, count)
    prev = stored.snapshot.last if at == 0 else Position(stored.records[at - 1].generation, base + at)
    committed = prev.index if at < count else prev.index + len(records)
    return Append("c", generation, "m", prev, records, committed, 0.0)


def _record(random: Random, generation: int) -> Record:
    value = None if random.random() < 0.3 else b"%d" % random.randrange(100)
    return Record(generation, {f"k{random.randrange(5)}": value}, ("x",) * (random.random() < 0.1))


def test_the_table_stores_what_the_acceptor_saves(tmp_path: Path) -> None:
    for seed in range(6):
        (folder := tmp_path / str(seed)).mkdir()
        random, model, index = Random(seed), Model(), opened(folder)
        table, acceptor = WitnessTable(index), Acceptor("a", Stored(), kept=3)
        committed = 0
        for _ in range(60):
            request = a_request(random, model.stored)
            if isinstance(request, Append) and request.snapshot is None and request.prev.index < committed:
                continue
            effects = acceptor.handle(request, now=0.0)
            saves: list[Save] = [effect for effect in effects if not isinstance(effect, Reply)]
            table.write(saves)
            model.write(saves)
            committed = max(committed, request.committed if isinstance(request, Append) else 0)
            assert table.stored() == model.stored
            if random.random() < 0.1:
                index.close()
                index = opened(folder)
                table = WitnessTable(index)
                assert table.stored() == model.stored
                acceptor = Acceptor("a", table.stored(), kept=3)
        index.close()


def test_a_forgotten_journal_leaves_a_witness_of_another_name(tmp_path: Path) -> None:
    """Under the former name it could promise the same generation twice."""
    index = opened(tmp_path)
    table, acceptor = WitnessTable(index), Acceptor("a", Stored())
    for request in (Promise("c", 1, "m"), Append("c", 1, "m", Position(0, 0), (Record(1, {"k": b"v"}),), 1, 0.0)):
        table.write([effect for effect in acceptor.handle(request, now=0.0) if not isinstance(effect, Reply)])
    assert table.name("a") == "a"
    table.forget()
    name = table.name("a")
    assert name != "a"
    assert table.stored() == Stored()
    index.close()
    index = opened(tmp_path)
    assert (WitnessTable(index).name("a"), WitnessTable(index).stored()) == (name, Stored())
    index.close()
