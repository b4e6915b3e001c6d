"""Addresses that workers register: manager and sidecars connect to them."""

from __future__ import annotations

import pytest

from replication_manager.service.service import _check_address
from rhino_core.errors import InvalidRequestError
from rhino_pb import common_pb2

HERE, HERE_6, THERE = "ipv4:127.0.0.1:40000", "ipv6:%5B::1%5D:40000", "ipv4:10.1.0.7:40000"


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("169.254.169.254:80", THERE),
        ("[fe80::1]:7462", THERE),
        ("0.0.0.0:7462", THERE),
        ("[::]:7462", HERE),
        ("224.0.0.1:7462", THERE),
        ("127.0.0.1:22", THERE),
        ("localhost:22", THERE),
        ("[::1]:22", THERE),
        ("[::ffff:169.254.169.254]:80", HERE),
        ("2852039166:80", HERE),
        ("0xa9fea9fe:80", HERE),
        ("169.254.43518:80", HERE),
        ("127.1:22", THERE),
        ("[::ffff:127.0.0.1]:22", THERE),
    ],
)
def test_an_address_that_means_the_machine_of_whoever_connects_is_refused(address: str, peer: str) -> None:
    with pytest.raises(InvalidRequestError, match="--advertise"):
        _check_address(common_pb2.Worker(worker_id="a", peer_address=address), peer)


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("10.1.0.7:7462", THERE),
        ("10.1.0.8:7462", THERE),
        ("worker-1:7462", THERE),
        ("10.example:7462", THERE),
        ("[::ffff:10.1.0.7]:7462", THERE),
        ("[2001:db8::1]:7462", THERE),
        ("127.0.0.1:7462", HERE),
        ("127.0.0.1:7462", HERE_6),
        ("localhost:7462", "ipv6:[::1]:40000"),
    ],
)
def test_others_are_taken(address: str, peer: str) -> None:
    _check_address(common_pb2.Worker(worker_id="a", peer_address=address), peer)
