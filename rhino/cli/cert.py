"""`rhino cert`: the authority of a cluster, and the certificates of its processes and people."""

# No postponed annotations: those of `_issue` name its local variables.

import datetime as dt
from pathlib import Path
from typing import Annotated, Any

import typer

from rhino.cli.options import JsonOption
from rhino.cli.output import say, say_json
from rhino_core.errors import AlreadyThereError, InvalidRequestError, InvalidSettingError
from rhino_core.folder import replace_file
from rhino_core.security.certificates import Authority, Material, fingerprint
from rhino_core.security.folders import write_folder
from rhino_core.security.identity import Identity, Role
from rhino_core.security.sources import AUTHORITIES_FILE, FolderSource, new_cluster_key, read_cluster_key
from rhino_core.settings import CLUSTER_KEY_VARIABLE

AUTHORITY_KEY_FILE = "ca.key"
DAYS = 365
DAYS_MAX = 3650
app = typer.Typer(
    no_args_is_help=True,
    help="Make the certificates of a cluster, and look at them.\n\nA certificate says who a process is: "
    "rhino://<cluster>/<role>/<name>. Certificates of other authorities with such a name do as well.",
)

FolderOption = Annotated[
    Path, typer.Option("--ca-dir", metavar="FOLDER", help="Folder of the authority, made by `rhino cert init`.")
]
KeyOption = Annotated[
    str,
    typer.Option(
        "--cluster-key", envvar=CLUSTER_KEY_VARIABLE, metavar="FILE", help="Issue by a cluster key, not by --ca-dir."
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Where the three files go. Default: a folder with the name.")
]
DaysOption = Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="Validity in days.")]
HostOption = Annotated[
    list[str] | None,
    typer.Option(help="Host name or address, for clients other than Rhino. Repeat the option for more."),
]
AUTHORITY_DIR = Path("ca")
ABOUT = {
    Role.MANAGER: ("The certificate of a manager.", "Name of the manager, such as its host."),
    Role.WORKER: ("The certificate of a sidecar.", "Worker id: that of `rhino sidecar --worker-id`."),
    Role.DRIVER: ("The certificate of Spark drivers.", "Name of the application, team or user."),
    Role.OPERATOR: ("The certificate of a person or program that may do everything.", "Name."),
    Role.READER: ("The certificate of a person or program that may only look.", "Name."),
}


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder of the authority.")] = AUTHORITY_DIR,
    cluster: Annotated[str, typer.Option(help="Name of the cluster, in every certificate.")] = "rhino",
    days: Annotated[int, typer.Option(min=1, max=10 * DAYS_MAX, help="Validity of the authority in days.")] = DAYS_MAX,
) -> None:
    """Make the authority of a cluster. Whoever has its ca.key can make any certificate: keep it off the cluster."""
    Identity(cluster, Role.MANAGER, "check")  # the name fits
    if (folder / AUTHORITY_KEY_FILE).exists():
        raise AlreadyThereError(f"{folder / AUTHORITY_KEY_FILE} exists; remove the folder to make another authority")
    authority = Authority.create(cluster, days)
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        replace_file(folder / AUTHORITY_KEY_FILE, authority.key_pem)
        replace_file(folder / AUTHORITIES_FILE, authority.certificate_pem)
    except OSError as error:
        raise InvalidSettingError(f"{error.filename}: {error.strerror}") from None
    say(f"authority of cluster {cluster} in {folder}: {AUTHORITIES_FILE} is public, {AUTHORITY_KEY_FILE} is secret")


@app.command()
def key(file: Annotated[Path, typer.Argument(metavar="FILE", help="New file, such as cluster.key.")]) -> None:
    """Make a cluster key, for small clusters. Every daemon makes its certificates from it (--cluster-key).

    Whoever has the file can be any process of the cluster. Copy it to every node; only the daemons' user may read it.
    """
    new_cluster_key(file)
    say(f"cluster key in {file}: copy it to every node, readable by the user of the daemons only")


def _issue(role: Role) -> Any:
    about, name_help = ABOUT[role]

    def command(
        name: Annotated[str, typer.Argument(metavar="NAME", help=name_help)],
        ca_dir: FolderOption = AUTHORITY_DIR,
        cluster_key: KeyOption = "",
        output: OutputOption = None,
        host: HostOption = None,
        days: DaysOption = DAYS,
    ) -> None:
        authority = Authority.of_cluster_key(read_cluster_key(Path(cluster_key))) if cluster_key else _authority(ca_dir)
        identity = Identity(authority.cluster, role, name)
        material = authority.issue(identity, dt.timedelta(days=days), host or ())
        folder = output or Path(name)
        try:
            write_folder(folder, material)
        except OSError as error:
            raise InvalidSettingError(f"{error.filename}: {error.strerror}") from None
        say(f"{identity} until {material.leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, in {folder}")

    command.__doc__ = f"{about} A former one in the folder is replaced: daemons take the new files without a restart."
    return command


for _role in Role:
    app.command(_role.value)(_issue(_role))


def _authority(folder: Path) -> Authority:
    try:
        files = [(folder / name).read_bytes() for name in (AUTHORITIES_FILE, AUTHORITY_KEY_FILE)]
    except OSError as error:
        raise InvalidSettingError(
            f"{error.filename}: {error.strerror}; `rhino cert init {folder}` makes an authority"
        ) from None
    return Authority.load(*files)


FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with ca.crt, tls.crt and tls.key.")]


@app.command()
def show(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Show whose certificate this is, and how long it is valid."""
    facts = _facts(FolderSource(folder).current())
    if as_json:
        say_json(facts)
        return
    for name, value in facts.items():
        say(f"{name:<12} {value}")


@app.command()
def verify(folder: FolderArgument) -> None:
    """Check that the certificate is valid now, fits to its key, and was issued by an authority in ca.crt."""
    material = FolderSource(folder).current()
    reason = _invalid(material)
    if reason:
        raise InvalidRequestError(f"{folder}: {reason}")
    say(f"{material.identity}: valid until {material.leaf.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")


def _facts(material: Material) -> dict[str, str]:
    leaf = material.leaf
    return {
        "identity": material.identity.uri,
        "server name": material.identity.server_name,
        "issuer": leaf.issuer.rfc4514_string(),
        "valid from": leaf.not_valid_before_utc.isoformat(),
        "valid until": leaf.not_valid_after_utc.isoformat(),
        "sha-256": fingerprint(leaf),
        "valid now": _invalid(material) or "yes",
    }


def _invalid(material: Material) -> str:
    """Why nobody would accept the certificate. Empty if it is valid."""
    leaf, now = material.leaf, dt.datetime.now(dt.UTC)
    if now < leaf.not_valid_before_utc:
        return f"not valid before {leaf.not_valid_before_utc.isoformat()}"
    if now > leaf.not_valid_after_utc:
        return f"expired at {leaf.not_valid_after_utc.isoformat()}"
    return "" if material.is_issued() else "none of the authorities in ca.crt has issued it"
