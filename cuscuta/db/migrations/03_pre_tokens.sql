-- Nobody had a token before this: scopes became one scope, each including those before it.
DELETE FROM api_token;
ALTER TABLE api_token
    DROP COLUMN scopes,
    ADD COLUMN scope   text NOT NULL CHECK (scope IN ('read', 'submit', 'operate', 'admin')),
    ADD COLUMN used_at timestamptz;
