"""Examples for the help of every command. A test parses each of them."""

from __future__ import annotations

import typer

EXAMPLES: dict[str, tuple[str, ...]] = {
    "sidecar": (
        "rhino sidecar --data-dir /data/rhino --host worker-1 --manager manager-host",
        "rhino sidecar --config /etc/rhino/sidecar.toml --print-settings",
    ),
    "manager": (
        "rhino manager --data-dir /var/lib/rhino-manager --listen manager-host:7461 --bootstrap",
        "rhino manager --config /etc/rhino/manager.toml",
    ),
    "cert init": ("rhino cert init", "rhino cert init /secure/ca --cluster production"),
    "cert key": ("rhino cert key cluster.key",),
    "cert manager": ("rhino cert manager manager-host --output /etc/rhino/tls",),
    "cert worker": ("rhino cert worker worker-1", "rhino cert worker worker-1 --days 30 --output /etc/rhino/tls"),
    "cert driver": (
        "rhino cert driver etl --output /etc/spark/rhino-tls",
        "rhino cert driver etl --cluster-key cluster.key",
    ),
    "cert operator": ("rhino cert operator alice --output ~/.rhino",),
    "cert reader": ("rhino cert reader grafana",),
    "cert show": ("rhino cert show /etc/rhino/tls", "rhino cert show /etc/rhino/tls --json"),
    "cert verify": ("rhino cert verify /etc/rhino/tls",),
    "conf": (
        "rhino conf --manager manager-host",
        "rhino conf --manager manager-host --format arguments",
        "rhino conf --manager manager-host --jar hdfs://namenode:8020/jars/rhino-spark.jar",
    ),
    "jar": ("rhino jar", "rhino jar --output-dir /opt/rhino"),
    "status": (
        "rhino status --manager manager-host",
        "rhino status --check",
        "rhino status --job counts --section nodes --section groups",
        "rhino status --watch",
    ),
    "top": ("rhino top --manager manager-host",),
    "ui": (
        "rhino ui --manager manager-host",
        "rhino ui --host 0.0.0.0 --tls-cert page.crt --tls-key page.key --read-only",
    ),
    "support-bundle": (
        "rhino support-bundle --manager manager-host",
        "rhino support-bundle --log /var/log/rhino/sidecar.log --output report.tar.gz",
    ),
    "scrub": ("rhino scrub --wait", "rhino scrub --worker worker-1 --worker worker-2 --wait --json"),
    "verify": (
        "rhino verify --job 5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e --data-dir /data/rhino",
        "rhino verify --job 5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e --data-dir /data/rhino --partition 3",
    ),
    "forget": (
        "rhino forget --job counts --dry-run",
        "rhino forget --job counts",
        "rhino forget --job counts --undo",
        "rhino forget --job counts --now --yes",
        "rhino forget --worker worker-2 --yes",
    ),
    "archive status": ("rhino archive status",),
    "archive now": ("rhino archive now --wait", "rhino archive now --job counts"),
    "archive list": ("rhino archive list", "rhino archive list --archive s3://bucket/rhino --json"),
    "archive verify": ("rhino archive verify --newest", "rhino archive verify --archive /mnt/archive"),
    "archive prune": ("rhino archive prune", "rhino archive prune --keep newest=3,daily=7 --yes"),
    "archive restore": (
        "rhino archive restore --job 5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e --to /ckpt/counts",
        "rhino archive restore --job 5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e --to /ckpt/counts --batch 1200 --yes",
    ),
    "archive export": (
        "rhino archive export --archive s3://bucket/rhino --job 5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e --to /ckpt/plain",
        "rhino archive export --job 5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e --to /ckpt/trial --batch 1200 --as-new-query",
    ),
    "archive claim": ("rhino archive claim --job 5b1f0c3e-9a3f-4d5a-8a35-1d5a3a1f0c3e --yes",),
    "local show": ("rhino local show", "rhino local show --data-dir ~/state"),
    "local clean": ("rhino local clean --dry-run", "rhino local clean --data-dir ~/state --yes"),
    "owner": ("rhino owner --job counts --to etl", "rhino owner --job counts --next-driver"),
    "history": ("rhino history", "rhino history --job counts", "rhino history --worker worker-1 --json"),
    "moved": ("rhino moved --job counts --to hdfs://namenode:8020/ckpt/counts",),
    "branch": (
        "rhino branch /ckpt/counts /ckpt/counts-next --manager manager-host",
        "rhino branch /ckpt/counts /ckpt/counts-next --batch 1200 --json",
    ),
    "shadow": ("rhino shadow /ckpt/counts-next", "rhino shadow /ckpt/counts-next --json"),
    "promote": (
        "rhino promote /ckpt/counts /ckpt/counts-next --state branch --dry-run",
        "rhino promote /ckpt/counts /ckpt/counts-next --state live --to /ckpt/counts-new",
    ),
    "restructure": (
        "rhino restructure /ckpt/counts /ckpt/counts-next --sketch /ckpt/counts-sketch --dry-run",
        "rhino restructure /ckpt/counts /ckpt/counts-next --sketch /ckpt/counts-sketch --pair 1=2 --drop 0",
    ),
    "rewind": (
        "rhino rewind /ckpt/counts --dry-run",
        "rhino rewind /ckpt/counts --file-sink /output/counts",
        "rhino rewind /ckpt/counts --no-file-sink --yes",
    ),
    "modify function": (
        "rhino modify function /ckpt/counts score --code score.py:score",
        "rhino modify function /ckpt/counts score --code score.py:score --dry-run",
        "rhino modify function /ckpt/counts score --jar score.jar --class com.acme.Score",
    ),
    "modify filter": ("rhino modify filter /ckpt/counts scored --where 'mod(y,2)=0'",),
    "modify join": (
        "rhino modify join /ckpt/counts scored --table /tables/factors --on k=id --set 'y=y*coalesce(table.factor,1)'",
        "rhino modify join /ckpt/counts scored --table /tables/known --on k=id --how left_semi --dry-run",
    ),
    "modify columns": (
        "rhino modify columns /ckpt/counts scored --set 'y=least(y,1000)'",
        "rhino modify columns /ckpt/counts scored --set 'y=score2(y,k)' --function score2=new.py:score2",
    ),
    "modify remove": ("rhino modify remove /ckpt/counts filter scored",),
    "modify withdraw": ("rhino modify withdraw /ckpt/counts 3",),
    "modifications": ("rhino modifications /ckpt/counts", "rhino modifications /ckpt/counts --json"),
    "restarts": ("rhino restarts /ckpt/counts", "rhino restarts /ckpt/counts --json"),
    "adopt": ("rhino adopt /ckpt/counts --dry-run", "rhino adopt /ckpt/counts --integration checkpoint"),
    "release": ("rhino release /ckpt/counts --dry-run", "rhino release /ckpt/counts --yes"),
    "doctor": (
        "rhino doctor --data-dir /data/rhino --spark-local-dir /data/spark",
        "rhino doctor --checkpoint /ckpt/counts",
        "rhino doctor --checkpoint s3://bucket/ckpt/counts --quick --json",
        "rhino doctor --checkpoint /ckpt/counts --repair-into /ckpt/counts-repaired",
    ),
    "explain": ("rhino explain 0/5 --job counts",),
    "scale": ("rhino scale", "rhino scale --job counts --json"),
    "why": ("rhino why", "rhino why --job counts --last 3"),
    "drain": (
        "rhino drain worker-1 --wait",
        "rhino drain worker-1 --dry-run",
        "rhino drain worker-1 --notice-s 120",
        "rhino drain worker-1 --cancel",
    ),
    "plan move": ("rhino plan move 0/2 0/4-6 --job counts --to worker-2",),
    "plan drain": ("rhino plan drain worker-1",),
    "plan rebalance": ("rhino plan rebalance --job counts --by time",),
    "plan scale-out": ("rhino plan scale-out worker-3 worker-4 --job counts",),
    "plan scale-in": ("rhino plan scale-in worker-3 --job counts",),
    "handover move": ("rhino handover move 0/2 0/4-6 --job counts --to worker-2 --wait",),
    "handover rebalance": ("rhino handover rebalance --job counts --gap 2b --wait",),
    "handover scale-out": ("rhino handover scale-out worker-3 --job counts --wait",),
    "handover scale-in": ("rhino handover scale-in worker-3 --job counts --start-at 2099-01-31T22:00",),
    "handover cancel": ("rhino handover cancel h-12",),
    "handover list": ("rhino handover list --job counts",),
    "handover show": ("rhino handover show h-12",),
    "handover watch": ("rhino handover watch h-12",),
}


def attach(app: typer.Typer) -> None:
    """Adds the examples to the help of each command. Raises KeyError for a command without any."""
    for command in app.registered_commands:
        command.epilog = _text(EXAMPLES[_name(command)])
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            command.epilog = _text(EXAMPLES[f"{group.name} {_name(command)}"])


def _name(command: object) -> str:
    given: str | None = getattr(command, "name", None)
    return given or getattr(command, "callback").__name__.replace("_", "-")  # noqa: B009  typed as optional


def _text(lines: tuple[str, ...]) -> str:
    return "\n\n".join(("Examples:", *(f"  {line}" for line in lines)))
