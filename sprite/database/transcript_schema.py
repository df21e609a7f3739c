"""Tables of transcript.db, and triggers that protect the log against changes."""

from __future__ import annotations

from sprite.database.connection import Schema
from sprite.database.ship_changes import noted
from sprite.database.turn_index import TURN_INDEX
from sprite.database.user_files import USER_FILES

SCHEMA = Schema(
    name="transcript.db",
    application_id=0x53505431,  # "SPT1"
    migrations=[
        """
        -- Which log this is, for good: what was made of another one, or of a newer copy of this one, is known by it.
        CREATE TABLE log_identity (id TEXT NOT NULL);
        INSERT INTO log_identity VALUES (lower(hex(randomblob(16))));
        CREATE TRIGGER log_identity_stays BEFORE DELETE ON log_identity
        BEGIN SELECT RAISE(ABORT, 'the identity of a log is never deleted'); END;
        CREATE TRIGGER log_identity_frozen BEFORE UPDATE ON log_identity
        BEGIN SELECT RAISE(ABORT, 'the identity of a log is never changed'); END;
        CREATE TRIGGER log_identity_alone BEFORE INSERT ON log_identity
        BEGIN SELECT RAISE(ABORT, 'a log never has a second identity'); END;
        CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            started_at REAL NOT NULL,
            ended_at REAL,
            message_count INTEGER NOT NULL DEFAULT 0,
            observation_count INTEGER NOT NULL DEFAULT 0,
            cli_session_id TEXT,
            last_active_at REAL NOT NULL DEFAULT 0
        );
        CREATE TABLE observations (
            id INTEGER PRIMARY KEY,
            timestamp REAL NOT NULL,
            session_id TEXT NOT NULL REFERENCES sessions (id),
            sequence_num INTEGER NOT NULL,
            user_message TEXT NOT NULL,
            tool_calls_json TEXT NOT NULL CHECK (json_valid(tool_calls_json)),
            agent_response TEXT NOT NULL,
            processed INTEGER NOT NULL DEFAULT 0,
            outcome TEXT NOT NULL
                CHECK (outcome IN ('complete', 'interrupted', 'error', 'max_turns', 'crashed')),
            mission_id TEXT UNIQUE,
            trigger TEXT NOT NULL DEFAULT 'user' CHECK (trigger IN ('user', 'task')),
            notice TEXT NOT NULL DEFAULT '',
            -- Where an imported turn comes from: it is taken once, also when its session's log has grown or was copied.
            import_key TEXT UNIQUE,
            -- What tools' results had that the log does not keep, as hashes of words: {tool_use_id: {words, blind?}}.
            unkept_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(unkept_json)),
            -- Whether a schedule began the turn; its `trigger` is 'task'.
            by_schedule INTEGER NOT NULL DEFAULT 0,
            -- Of which project it is (null: the person's own), and which program it was said to (null: this sprite).
            project TEXT,
            source TEXT,
            -- Which program's words `user_message` has (null: the person's, or nobody's); the `trigger` of such a turn
            -- is 'task'.
            asked_by TEXT,
            UNIQUE (session_id, sequence_num)
        );
        CREATE INDEX observations_waiting ON observations (id) WHERE processed = 0;
        CREATE INDEX observations_quarantined ON observations (id) WHERE processed = 2;
        CREATE INDEX observations_project ON observations (project, id) WHERE project IS NOT NULL;
        CREATE TRIGGER observations_stay BEFORE DELETE ON observations
        BEGIN SELECT RAISE(ABORT, 'observations are never deleted'); END;
        CREATE TRIGGER observations_frozen BEFORE UPDATE ON observations
        WHEN NOT (OLD.id IS NEW.id AND OLD.timestamp IS NEW.timestamp
            AND OLD.session_id IS NEW.session_id AND OLD.sequence_num IS NEW.sequence_num
            AND OLD.user_message IS NEW.user_message AND OLD.tool_calls_json IS NEW.tool_calls_json
            AND OLD.agent_response IS NEW.agent_response AND OLD.outcome IS NEW.outcome
            AND OLD.mission_id IS NEW.mission_id AND OLD.trigger IS NEW.trigger
            AND OLD.notice IS NEW.notice AND OLD.import_key IS NEW.import_key
            AND OLD.unkept_json IS NEW.unkept_json AND OLD.by_schedule IS NEW.by_schedule
            AND OLD.project IS NEW.project AND OLD.source IS NEW.source AND OLD.asked_by IS NEW.asked_by)
        BEGIN SELECT RAISE(ABORT, 'observations are never changed'); END;
        -- REPLACE deletes the row in its way without asking the trigger on DELETE.
        CREATE TRIGGER observations_new BEFORE INSERT ON observations
        WHEN EXISTS (SELECT 1 FROM observations WHERE id = NEW.id OR mission_id = NEW.mission_id
            OR import_key = NEW.import_key OR (session_id = NEW.session_id AND sequence_num = NEW.sequence_num))
        BEGIN SELECT RAISE(ABORT, 'observations are never replaced'); END;
        CREATE TABLE turn_journal (
            id INTEGER PRIMARY KEY,
            turn_key TEXT NOT NULL,
            session_id TEXT NOT NULL,
            at REAL NOT NULL,
            event TEXT NOT NULL,
            data_json TEXT NOT NULL
        );
        CREATE INDEX turn_journal_turns ON turn_journal (turn_key);
        CREATE TABLE curations (
            id INTEGER PRIMARY KEY,
            created_at REAL NOT NULL,
            kind TEXT NOT NULL,
            first_observation_id INTEGER,
            last_observation_id INTEGER,
            model TEXT,
            prompt_sha256 TEXT,
            response TEXT NOT NULL,
            usage_json TEXT,
            cost_usd REAL,
            seen_curation_id INTEGER,
            generation INTEGER NOT NULL DEFAULT 0,
            -- What was decided about it, logged with it: memory is a fold of decisions.
            decision_json TEXT CHECK (decision_json IS NULL OR json_valid(decision_json))
        );
        CREATE INDEX curations_quarantine ON curations (first_observation_id) WHERE kind = 'quarantine';
        -- Whether another extraction took over is asked at every turn; answers are long rows.
        CREATE INDEX curations_edit ON curations (id) WHERE kind = 'edit';
        CREATE INDEX curations_drift ON curations (id) WHERE kind = 'drift';
        CREATE INDEX curations_action ON curations (id) WHERE kind = 'action';
        CREATE TRIGGER curations_stay BEFORE DELETE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never deleted'); END;
        CREATE TRIGGER curations_frozen BEFORE UPDATE ON curations
        BEGIN SELECT RAISE(ABORT, 'curations are never changed'); END;
        CREATE TRIGGER curations_new BEFORE INSERT ON curations
        WHEN EXISTS (SELECT 1 FROM curations WHERE id = NEW.id)
        BEGIN SELECT RAISE(ABORT, 'curations are never replaced'); END;
        -- Calls that were paid for and gave no curation: cut off, empty, or asked once more; and an answer until its
        -- curation is logged. No number comes twice. It says which turns a call was about, in which extraction: what
        -- counts against a turn outlives the process.
        CREATE TABLE lost_calls (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            created_at REAL NOT NULL,
            model TEXT NOT NULL,
            reason TEXT NOT NULL,
            usage_json TEXT NOT NULL,
            cost_usd REAL,
            first_observation_id INTEGER,
            last_observation_id INTEGER,
            generation INTEGER NOT NULL DEFAULT 0
        );
        CREATE TRIGGER lost_calls_stay BEFORE DELETE ON lost_calls WHEN OLD.reason <> 'not logged'
        BEGIN SELECT RAISE(ABORT, 'lost calls are never deleted'); END;
        CREATE TRIGGER lost_calls_frozen BEFORE UPDATE ON lost_calls
        BEGIN SELECT RAISE(ABORT, 'lost calls are never changed'); END;
        CREATE VIEW model_calls AS
            SELECT created_at, usage_json, cost_usd FROM curations WHERE kind = 'batch'
            UNION ALL SELECT created_at, usage_json, cost_usd FROM lost_calls;
        """  # noqa: S608 - our own schema
        + TURN_INDEX
        + USER_FILES
        + noted(
            (
                *("log_identity", "sessions", "observations", "turn_journal", "curations", "lost_calls"),
                *("disk_entries", "disk_look", "file_deeds"),
            )
        ),
    ],
)
