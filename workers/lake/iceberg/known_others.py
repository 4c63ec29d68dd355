"""The commits of other writers to a destination's tables, as last looked for.

``look`` is called whenever a branch was created. Without ``track_commit_timestamp`` nobody asks,
and the look costs nothing. See ``workers.lake.sql.other_writers`` for what a commit of another
writer is.
"""

from __future__ import annotations

from workers.lake.connect.sessions import Sessions
from workers.lake.sql.other_writers import NO_OTHER_WRITERS, OtherWriters, look_for_others
from workers.lake.table import LakeIdent


class KnownOthers:
    """Other writers by table. ``finds`` is false where rows of other writers are not counted."""

    def __init__(self, sessions: Sessions, *, finds: bool) -> None:
        self._sessions = sessions
        self._finds = finds
        self._known: dict[LakeIdent, OtherWriters] = {}

    def look(self, ident: LakeIdent) -> None:
        """Look for new commits; later rows of other writers make the publication fail."""
        if self._finds:
            known = self._known.get(ident)
            self._known[ident] = look_for_others(self._sessions.get(), ident, known)

    def of(self, ident: LakeIdent) -> OtherWriters:
        """The table's other writers as last found."""
        return self._known.get(ident, NO_OTHER_WRITERS)
