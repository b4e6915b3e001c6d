"""Files of one job as files of another: hard links. No byte is copied or read."""

from __future__ import annotations

from dataclasses import replace

from rhino_core.errors import AlreadyThereError, UnknownError
from rhino_core.ids import FileEntry, Lane
from worker_runtime.storage.admission import Admission
from worker_runtime.storage.files import Seal
from worker_runtime.storage.received_files import IncomingFiles
from worker_runtime.storage.stored_file import StoredFile
from worker_runtime.storage.stored_files import StoredFiles
from worker_runtime.storage.threads import Threads


class Branches:
    """Links stored files. `worker_id` is recorded as the writer of the links."""

    def __init__(
        self, worker_id: str, stored: StoredFiles, incoming: IncomingFiles, admission: Admission, threads: Threads
    ) -> None:
        self._worker_id = worker_id
        self._stored = stored
        self._incoming = incoming
        self._admission = admission
        self._threads = threads

    async def link(self, source: FileEntry, job: str) -> StoredFile:
        """Makes a stored file a file of `job`, too. A changelog or zip is hidden at first, as one that is uploaded.

        The call may be repeated. Raises UnknownError if the source is not here or was changed on disk,
        AlreadyThereError for a different file of the same name, NoSpaceError, IntegrityError, UnavailableError if the
        file cannot be synced.
        """
        store = source.store._replace(job=job)
        entry = replace(source, store=store, written_by=self._worker_id, branch_of=source.store.job)
        async with self._admission.turn(store, entry.name):
            if (known := self._stored.record(store, entry.name)) is not None:
                if (known.entry.crc32c, known.entry.size_bytes) != (entry.crc32c, entry.size_bytes):
                    raise AlreadyThereError(f"{store}/{entry.name} is here with another checksum")
                return known
            record = self._stored.record(source.store, source.name)

            def link() -> Seal | None:
                incoming = self._incoming.link(entry, [record] if record is not None else [])
                return None if incoming is None else self._incoming.place(entry, incoming)

            seal = await self._threads.run(Lane.BULK, link)
            if seal is None:
                raise UnknownError(f"{source.store}/{source.name} is not here, or cannot be linked")
            return await self._admission.admit(entry, seal, received=False, linked=True)
