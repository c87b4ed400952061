-- What holders of an account learnt about its allowance, for the next one.
ALTER TABLE account_table
    ADD COLUMN pace       double precision CHECK (pace > 0),   -- calls a second; null: nothing learnt yet
    ADD COLUMN pace_found boolean NOT NULL DEFAULT false,      -- whether a refusal has shown where the allowance ends
    ADD COLUMN throttled  integer NOT NULL DEFAULT 0;          -- refusals in a row
