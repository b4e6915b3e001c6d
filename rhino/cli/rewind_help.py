"""What a user of `rhino rewind` must know."""

HELP = "\n\n".join(
    [
        "Take a query back to the newest batch whose state is held, after all copies of a later one were lost.",
        "The files of the later batches are moved from `offsets` and `commits` of the query checkpoint into "
        "`rhino-rewind-<time>` below it; until the query has started again, moving them back undoes the command. The "
        "checkpoint must be a local or mounted folder. Refused while a driver runs the query, while a known worker is "
        "not live, and when no batch is held in full.",
        "What you must know: the batches after it are computed AGAIN, so",
        "* the source must still have their data (Kafka: its retention);",
        "* the sink must take them again. The first one has the same rows as before; those after it are cut anew, so "
        "that a batch id may stand for other rows. An upsert by key is safe. A sink that overwrites what it has of a "
        "batch id (as foreachBatch can) is safe once you have deleted its output of the batches that this command "
        "names. A sink that leaves out batch ids it has seen (Delta's txnVersion, a table of ids) would lose rows "
        "unless these ids are deleted there. A sink that only appends gets rows twice.",
        "* Spark's file sink leaves out batches by its own log: with --file-sink its entries of these batches are "
        "moved into `_rhino-rewind-<time>` in the output folder. Their data files stay: Spark's readers go by the log, "
        "others would count their rows twice, and a query that streams from the folder has read them already.",
    ]
)
