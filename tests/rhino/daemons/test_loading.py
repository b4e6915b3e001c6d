"""Settings of daemons: flags before variables before the file before defaults, and errors in the words of the user."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from rhino.daemons.loading import load
from rhino_core.errors import InvalidSettingError
from rhino_core.setting import MIB, declared
from rhino_core.settings import ManagerSettings, SidecarSettings, addresses_of, without_settings

DAEMONS = (SidecarSettings, ManagerSettings)
PLACES = {"data_dir": "/data/rhino"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rhino.toml"


def sidecar(
    flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, file: Path | None = None
) -> SidecarSettings:
    return load(SidecarSettings, PLACES | (flags or {}), environment or {}, file, host_name="node-1").settings


def test_flags_come_before_variables_before_the_file_before_defaults(file: Path) -> None:
    file.write_text("reserve_mb = 1\npush_port = 1\nmetrics_port = 1\n")
    environment = {"RHINO_SIDECAR_RESERVE_MB": "2", "RHINO_SIDECAR_PUSH_PORT": "2"}
    found = sidecar({"reserve_bytes": "3"}, environment, file)
    assert (found.reserve_bytes, found.push_port, found.metrics_port) == (3 * MIB, 2, 1)
    assert found.scrub_bytes_per_s == 16 * MIB


def test_a_flag_turns_off_what_the_file_turns_on(file: Path) -> None:
    file.write_text("reflection = true\n")
    assert sidecar(file=file).reflection
    assert not sidecar({"reflection": False}, file=file).reflection


def test_defaults_of_the_machine() -> None:
    found = sidecar()
    assert (found.host, found.worker_id, found.listen) == ("node-1", "node-1", "node-1:7462")
    assert sidecar(environment={"SPARK_LOCAL_IP": "10.0.0.7"}).listen == "10.0.0.7:7462"
    assert sidecar({"host": "node-2"}).worker_id == "node-2"


@pytest.mark.parametrize(
    ("listen", "advertise", "address"),
    [
        ("node-1:7462", "", "node-1:9"),
        ("0.0.0.0:7462", "", "node-1:9"),
        ("[::]:7462", "", "node-1:9"),
        ("0.0.0.0:0", "10.0.0.7", "10.0.0.7:9"),
        ("[::1]:7462", "[fd00::7]", "[fd00::7]:9"),
        ("127.0.0.1:7462", "host.example:30462", "host.example:30462"),
    ],
)
def test_the_address_for_others(listen: str, advertise: str, address: str) -> None:
    found = sidecar({"listen": listen, "advertise": advertise})
    assert found.peer_address(9) == address


def test_the_address_of_the_manager_is_also_that_of_the_commands() -> None:
    assert sidecar(environment={"RHINO_MANAGER": "m:1"}).manager == "m:1"
    assert sidecar(environment={"RHINO_MANAGER": "m:1", "RHINO_SIDECAR_MANAGER": "m:2"}).manager == "m:2"


def test_an_empty_variable_is_not_given() -> None:
    assert sidecar(environment={"RHINO_SIDECAR_RESERVE_MB": ""}).reserve_bytes == 256 * MIB


@pytest.mark.parametrize(
    ("flags", "environment", "text", "message"),
    [
        ({"reserve_bytes": "-1"}, {}, "", "--reserve-mb -1: must be 0 or more"),
        ({"reserve_bytes": "x"}, {}, "", "--reserve-mb x: must be an integer"),
        ({"listen": "nowhere"}, {}, "", "--listen 'nowhere': must be \"host:port\""),
        ({"advertise": "0.0.0.0"}, {}, "", "--advertise '0.0.0.0': must be a host that others can reach"),
        ({"advertise": "node:0"}, {}, "", "--advertise 'node:0': must be a host that others can reach"),
        ({"data_dir": ""}, {}, "", "--data-dir '': must be a folder"),
        ({}, {"RHINO_SIDECAR_RESERVE_MB": "1.5"}, "", "RHINO_SIDECAR_RESERVE_MB=1.5: must be an integer"),
        (
            {},
            {"RHINO_SIDECAR_COMMIT_TIMEOUT_S": "inf"},
            "",
            "RHINO_SIDECAR_COMMIT_TIMEOUT_S=inf: must be a finite number",
        ),
        ({}, {"RHINO_SIDECAR_REFLECTION": "maybe"}, "", "RHINO_SIDECAR_REFLECTION=maybe: must be true or false"),
        ({}, {"RHINO_MANAGER": "m m"}, "", "RHINO_MANAGER='m m': must be"),
        ({}, {"SPARK_LOCAL_IP": "a b"}, "", "--host 'a b' (its default): must be"),
        ({}, {}, "push_port = 65536", "{file}: push_port = 65536: must be a port: 0 to 65535"),
        ({}, {}, 'push_port = "7463"', '{file}: push_port = "7463": must be an integer'),
        ({}, {}, "push_port = true", "{file}: push_port = true: must be an integer"),
        ({}, {}, "reserve_mb = 0.5", "{file}: reserve_mb = 0.5: must be an integer"),
        ({}, {}, "reflection = 1", "{file}: reflection = 1: must be true or false"),
        ({}, {}, "host = 7", "{file}: host = 7: must be a string in quotation marks"),
        ({}, {}, "memory_limit_mb = 8", "{file}: memory_limit_mb = 8: must be at least twice --window-kb"),
        ({}, {}, "window_kb = 1", "{file}: window_kb = 1: must be at least --chunk-kb"),
        ({}, {}, "reserve_gb = 1", "{file}: reserve_gb is no setting of `rhino sidecar`; did you mean reserve_mb?"),
        ({}, {}, "colour = 1", "{file}: colour is no setting of `rhino sidecar`: it has data_dir, "),
        ({}, {}, "empty_store = true", "is for one start only: give --empty-store, or RHINO_SIDECAR_EMPTY_STORE=true"),
        ({}, {}, "reserve_mb", "--config '{file}': must be a TOML file: "),
    ],
)
def test_an_error_names_what_the_user_wrote(
    file: Path, flags: dict[str, Any], environment: dict[str, str], text: str, message: str
) -> None:
    file.write_text(text)
    with pytest.raises(InvalidSettingError) as caught:
        sidecar(flags, environment, file)
    assert message.replace("{file}", str(file)) in str(caught.value)


def test_a_default_that_does_not_fit_is_named() -> None:
    with pytest.raises(
        InvalidSettingError, match=r"--suspect-lease-s '1' \(its default\): must be above 0 and at most"
    ):
        load(ManagerSettings, PLACES | {"lease_s": "0.9", "heartbeat_interval_s": "0.1"}, {})


def test_a_missing_setting_says_how_it_is_given() -> None:
    with pytest.raises(
        InvalidSettingError, match=r"--data-dir is missing: give it, or RHINO_SIDECAR_DATA_DIR, or data"
    ):
        load(SidecarSettings, {}, {})


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match=r"--config '.*nothing': No such file"):
        sidecar(file=tmp_path / "nothing")


def test_variables_without_a_setting_are_told() -> None:
    others = {"RHINO_MANAGER_LEASE_S": "1", "RHINO_SIDECAR_CONFIG": "/f", "RHINO_SIDECAR_RESERVE_MB": "1"}
    environment = {"RHINO_SIDECAR_RESERVE_GB": "1"} | others
    assert load(SidecarSettings, PLACES, environment).unknown == ("RHINO_SIDECAR_RESERVE_GB",)


@pytest.mark.parametrize("kind", DAEMONS)
def test_printed_settings_are_a_file_with_the_same_settings(kind: Any, file: Path) -> None:
    odd = {"data_dir": '/da"ta/\x1b\\n', "lease_s": "7.25"} if kind is ManagerSettings else {"excess_grace_s": "0.1"}
    loaded = load(kind, PLACES | odd, {})
    lines = list(loaded.lines())
    assert any(line.endswith("# --data-dir") for line in lines)
    assert any(line.endswith("# default") for line in lines)
    file.write_text("\n".join(lines))
    assert load(kind, {}, {}, file).settings == loaded.settings
    assert not {one.key for one in declared(kind) if one.about.one_start} & tomllib.loads(file.read_text()).keys()


@pytest.mark.parametrize("kind", DAEMONS)
def test_each_default_is_what_its_text_says(kind: Any) -> None:
    for one in declared(kind):
        if one.default is not None and one.default != "":
            assert one.parse(one.default_text) == one.default, one.key


def test_daemons_that_others_start_take_no_settings_from_the_environment() -> None:
    environment = {"RHINO_SIDECAR_LISTEN": "h:1", "RHINO_MANAGER_LEASE_S": "1", "RHINO_MANAGER": "m:1", "PATH": "/bin"}
    assert without_settings(environment) == {"RHINO_MANAGER": "m:1", "PATH": "/bin"}


@pytest.mark.parametrize(
    ("given", "address"), [("m", "m:7461"), ("m:7", "m:7"), ("[::1]", "[::1]:7461"), ("10.0.0.7", "10.0.0.7:7461")]
)
def test_a_manager_without_a_port_has_the_default_port(given: str, address: str) -> None:
    assert sidecar({}, {"RHINO_MANAGER": given}).manager == address


def test_witnesses_have_worker_ids() -> None:
    named = addresses_of("w1:7462,b=10.0.0.2:1,c=10.0.0.2:2")
    assert named == {"w1:7462": "w1", "10.0.0.2:1": "b", "10.0.0.2:2": "c"}


@pytest.mark.parametrize("text", ["w1:1,w2:1", "w1:1,w2:1,w1:1", "a=w1:1,a=w2:1,w3:1", "w1:1,w2,w3:1", "w1:1,,w3:1"])
def test_witnesses_are_an_odd_number_of_different_sidecars(text: str) -> None:
    with pytest.raises(InvalidSettingError, match="1, 3, 5 or another odd number of different sidecars"):
        ManagerSettings(Path("/x"), witnesses=text)
