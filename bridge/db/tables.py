"""The bridge's tables, in SQL that SQLite and Postgres share. Times are Unix seconds, amounts are US dollars.

Tokens are stored only as SHA-256: they are random, so no slower hash is needed. The keys that sign cookies, push
messages and webhooks are stored; alone they give no access.
"""

#: People and their login methods. `spent_challenges` are passkey challenges that were already used.
_PEOPLE = """
CREATE TABLE people (
    name TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    last_seen_at REAL,
    revoked_at REAL,
    role TEXT NOT NULL DEFAULT 'person'
) STRICT;
CREATE TABLE login_links (
    token_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    expires_at REAL NOT NULL,
    used_at REAL
) STRICT;
CREATE TABLE sessions (
    id_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT;
CREATE TABLE person_tokens (
    token_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    created_at REAL NOT NULL,
    label TEXT NOT NULL DEFAULT 'full',
    -- Names with spaces between, null where the token is full (see bridge/auth/tokens.py).
    scopes TEXT,
    used_at REAL
) STRICT;
CREATE UNIQUE INDEX person_tokens_label ON person_tokens(person, label);
CREATE TABLE cookie_key (key BLOB NOT NULL) STRICT;
CREATE TABLE oidc_identities (
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    created_at REAL NOT NULL,
    PRIMARY KEY (issuer, subject)
) STRICT;
CREATE INDEX oidc_identities_person ON oidc_identities(person);
CREATE TABLE passkeys (
    credential_id BLOB PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    public_key BLOB NOT NULL,
    sign_count INTEGER NOT NULL,
    label TEXT NOT NULL,
    created_at REAL NOT NULL,
    used_at REAL
) STRICT;
CREATE INDEX passkeys_person ON passkeys(person);
CREATE TABLE spent_challenges (
    challenge_sha256 BLOB PRIMARY KEY,
    expires_at REAL NOT NULL
) STRICT;
"""

#: Model calls and their cost; ids are unique over all bridges (see bridge/proxy/calls.py). A hold that is not renewed
#: expires at `held_until`. `calls_of_sprite` has all columns of a sprite's sums. `raised_limits`: a person's raise
#: of a day's budget (UTC, days since 1970).
_CALLS = """
CREATE TABLE sprite_tokens (
    sprite TEXT PRIMARY KEY,
    token_sha256 BLOB NOT NULL UNIQUE,
    created_at REAL NOT NULL
) STRICT;
CREATE TABLE calls (
    id TEXT PRIMARY KEY NOT NULL,
    sprite TEXT NOT NULL,
    held_usd REAL,
    spent_usd REAL,
    state TEXT NOT NULL,
    at REAL NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT,
    status INTEGER,
    request_id TEXT,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cache_write_1h_tokens INTEGER NOT NULL,
    web_searches INTEGER NOT NULL,
    is_estimate INTEGER NOT NULL,
    duration_ms REAL,
    held_until REAL
) STRICT;
CREATE INDEX calls_at ON calls(at);
CREATE INDEX calls_of_sprite ON calls(sprite, at, state, held_usd, spent_usd);
CREATE INDEX calls_held ON calls(held_until) WHERE state = 'held';
CREATE TABLE raised_limits (
    sprite TEXT NOT NULL,
    day INTEGER NOT NULL,
    usd REAL NOT NULL,
    PRIMARY KEY (sprite, day)
) STRICT;
"""

_NOTIFY = """
CREATE TABLE notify_settings (
    person TEXT PRIMARY KEY REFERENCES people(name) ON DELETE CASCADE,
    words INTEGER NOT NULL
) STRICT;
CREATE TABLE push_key (private_der BLOB NOT NULL) STRICT;
CREATE TABLE push_subscriptions (
    endpoint TEXT PRIMARY KEY,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    session_sha256 BLOB NOT NULL REFERENCES sessions(id_sha256) ON DELETE CASCADE,
    p256dh TEXT NOT NULL,
    auth TEXT NOT NULL,
    seen_at REAL NOT NULL
) STRICT;
CREATE INDEX push_subscriptions_person ON push_subscriptions(person);
CREATE INDEX push_subscriptions_session ON push_subscriptions(session_sha256);
CREATE TABLE notices (
    sprite TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    request_id TEXT,
    at REAL NOT NULL,
    is_told INTEGER NOT NULL,
    kept_at REAL NOT NULL,
    PRIMARY KEY (sprite, key)
) STRICT;
CREATE TABLE told_until (
    sprite TEXT PRIMARY KEY,
    at REAL NOT NULL
) STRICT;
CREATE TABLE webhook_key (key BLOB NOT NULL) STRICT;
"""

_WAKING = """
CREATE TABLE waking (
    sprite TEXT PRIMARY KEY,
    next_due REAL,
    seen_at REAL NOT NULL,
    is_open INTEGER NOT NULL
) STRICT;
CREATE INDEX waking_due ON waking(next_due);
CREATE INDEX waking_open ON waking(sprite) WHERE is_open = 1;
"""

#: A grant is a person's token; deleting it deletes the credentials of its program (see bridge/mcp/grants.py).
_OAUTH = """
CREATE TABLE oauth_clients (
    client_id TEXT PRIMARY KEY,
    info TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
CREATE TABLE oauth_codes (
    code_sha256 BLOB PRIMARY KEY,
    client_id TEXT NOT NULL REFERENCES oauth_clients(client_id) ON DELETE CASCADE,
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    info TEXT NOT NULL,
    expires_at REAL NOT NULL
) STRICT;
CREATE TABLE oauth_grants (
    refresh_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL,
    label TEXT NOT NULL,
    client_id TEXT NOT NULL REFERENCES oauth_clients(client_id) ON DELETE CASCADE,
    scopes TEXT NOT NULL,
    expires_at REAL NOT NULL,
    FOREIGN KEY (person, label) REFERENCES person_tokens(person, label) ON DELETE CASCADE
) STRICT;
CREATE INDEX oauth_grants_token ON oauth_grants(person, label);
CREATE INDEX oauth_grants_client ON oauth_grants(client_id);
CREATE TABLE oauth_spent (
    refresh_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL,
    label TEXT NOT NULL,
    spent_at REAL NOT NULL,
    FOREIGN KEY (person, label) REFERENCES person_tokens(person, label) ON DELETE CASCADE
) STRICT;
CREATE INDEX oauth_spent_token ON oauth_spent(person, label);
CREATE TABLE granted_access (
    access_sha256 BLOB PRIMARY KEY,
    person TEXT NOT NULL,
    label TEXT NOT NULL,
    expires_at REAL NOT NULL,
    FOREIGN KEY (person, label) REFERENCES person_tokens(person, label) ON DELETE CASCADE
) STRICT;
CREATE INDEX granted_access_token ON granted_access(person, label);
"""

#: Leases of sprites, and the machines of local workspaces.
_CLUSTER = """
CREATE TABLE leases (
    sprite TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    address TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    expires_at REAL NOT NULL
) STRICT;
CREATE INDEX leases_owner ON leases(owner);
CREATE TABLE homes (
    sprite TEXT PRIMARY KEY,
    machine TEXT NOT NULL,
    path TEXT NOT NULL
) STRICT;
"""

#: Sealed replicas (see bridge/replicas/sprite_log.py). A store in files has the same tables in each of its files.
STORE_TABLES = """
CREATE TABLE stored_sprites (
    sprite TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    wipe_due INTEGER NOT NULL,
    -- How many rows stored_census counts.
    rows INTEGER NOT NULL DEFAULT 0,
    -- When the last check of all pieces began and ended, and what it found damaged or missing.
    check_began_at REAL,
    checked_at REAL,
    damaged INTEGER NOT NULL DEFAULT 0,
    -- When the sprite was last asked to ship those pieces again.
    asked_again_at REAL,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL
) STRICT;
-- Rows are counted, and the hashes of their places summed, so that one that is lost is missed.
CREATE TABLE stored_census (
    sprite TEXT NOT NULL,
    generation INTEGER NOT NULL,
    part TEXT NOT NULL,
    bucket INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (sprite, generation, part, bucket)
) STRICT;
CREATE TABLE stored_positions (
    sprite TEXT NOT NULL,
    generation INTEGER NOT NULL,
    log TEXT,
    through INTEGER NOT NULL,
    at REAL NOT NULL,
    whole_through INTEGER NOT NULL,
    whole_at REAL,
    changed_through INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (sprite, generation)
) STRICT;
CREATE TABLE stored_moments (
    sprite TEXT NOT NULL,
    generation INTEGER NOT NULL,
    through INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (sprite, generation, through)
) STRICT;
CREATE TABLE stored_rows (
    sprite TEXT NOT NULL,
    generation INTEGER NOT NULL,
    part TEXT NOT NULL,
    name BLOB NOT NULL,
    position INTEGER NOT NULL,
    since INTEGER NOT NULL,
    replaced_by INTEGER,
    number INTEGER NOT NULL,
    is_gone INTEGER NOT NULL,
    is_doomed INTEGER NOT NULL DEFAULT 0,
    is_damaged INTEGER NOT NULL DEFAULT 0,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (sprite, generation, part, name, position)
) STRICT;
CREATE INDEX stored_rows_order ON stored_rows(sprite, generation, part, number, name);
CREATE INDEX stored_rows_older ON stored_rows(sprite, generation, replaced_by);
CREATE TABLE stored_chunks (
    sprite TEXT NOT NULL,
    name BLOB NOT NULL,
    unused_since REAL,
    is_damaged INTEGER NOT NULL DEFAULT 0,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (sprite, name)
) STRICT;
CREATE TABLE stored_references (
    sprite TEXT NOT NULL,
    chunk BLOB NOT NULL,
    generation INTEGER NOT NULL,
    part TEXT NOT NULL,
    name BLOB NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (sprite, chunk, generation, part, name, position)
) STRICT;
CREATE INDEX stored_references_row ON stored_references(sprite, generation, part, name, position);
"""

#: Sprites with a restore in progress: their earlier machine or workspace was moved away (bridge/replicas/restore.py).
_RESTORES = """
CREATE TABLE restores (
    sprite TEXT PRIMARY KEY,
    begun_at REAL NOT NULL
) STRICT;
"""

#: Connections to MCP servers; `sealed` has their addresses, credentials and tools (see bridge/connections/store.py).
_CONNECTIONS = """
CREATE TABLE connections (
    person TEXT NOT NULL REFERENCES people(name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    day INTEGER NOT NULL DEFAULT 0,
    calls INTEGER NOT NULL DEFAULT 0,
    key_id TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (person, name)
) STRICT;
"""

_AUDIT = """
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail_json TEXT NOT NULL
) STRICT;
CREATE INDEX audit_at ON audit(at);
"""

#: `MIGRATIONS[n]` takes a database from version n to n + 1; the first is the baseline.
MIGRATIONS: tuple[str, ...] = (
    _PEOPLE + _CALLS + _NOTIFY + _WAKING + _OAUTH + _CLUSTER + STORE_TABLES + _RESTORES + _CONNECTIONS + _AUDIT,
)
