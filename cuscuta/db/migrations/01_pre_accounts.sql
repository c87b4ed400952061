CREATE TABLE account_table (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_email    text NOT NULL UNIQUE,
    account_password text NOT NULL,                       -- Fernet token
    user_id          text,
    temp_token       text,                                -- Fernet token
    state            text NOT NULL DEFAULT 'Idle' CHECK (state IN ('Idle', 'Using', 'Resting', 'Disabled')),
    rate             double precision NOT NULL DEFAULT 1 CHECK (rate >= 0 AND rate <= 1),
    lease_owner      text,
    lease_term       bigint NOT NULL DEFAULT 0,           -- fencing number, one more with every lease
    lease_time       timestamptz,                         -- last leased or renewed
    lease_until      timestamptz,
    rest_until       timestamptz,
    last_error       text,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now()
);

-- the lease query: free accounts, best rating first, longest idle next
CREATE INDEX account_free ON account_table (rate DESC, lease_time ASC NULLS FIRST) WHERE state IN ('Idle', 'Resting');
CREATE INDEX account_lease ON account_table (lease_until) WHERE state = 'Using';

CREATE TABLE api_token (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL,
    digest     bytea NOT NULL UNIQUE,
    scopes     text[] NOT NULL,
    job_group  text,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
