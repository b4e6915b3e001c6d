"""The help text of `rhino rewind`."""

HELP = "\n\n".join(
    [
        "Reset a query to the newest batch whose state is complete, after all copies of a newer version were lost.",
        "The command moves the files of the later batches from `offsets` and `commits` of the checkpoint into "
        "`rhino-rewind-<time>` inside the checkpoint. Until the query has started again, moving them back undoes the "
        "command. The checkpoint must be a local or mounted folder. The command is refused while a driver runs the "
        "query, while a known worker is not live, and when no batch is complete.",
        "The later batches are computed AGAIN:",
        "* The source must still have their data (Kafka: its retention).",
        "* The sink must accept them again. The first one has the same rows as before. Spark plans the others anew, so "
        "a batch id may stand for other rows. An upsert by key is safe. A sink that overwrites its output of a batch "
        "id (as foreachBatch can) is safe once you have deleted its output of the batches that this command names. A "
        "sink that skips batch ids it has seen (Delta's txnVersion, a table of ids) loses rows unless you delete these "
        "ids there. A sink that only appends gets rows twice.",
        "* Spark's file sink skips batches by its own log. With --file-sink, the command moves the entries of these "
        "batches into `_rhino-rewind-<time>` in the output folder. Their data files stay. Spark's readers follow the "
        "log and ignore them. Other readers count their rows twice, and a query that streams from the folder has read "
        "them already.",
    ]
)
