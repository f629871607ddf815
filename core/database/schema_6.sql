-- SPDX-License-Identifier: Apache-2.0
-- From schema version 5 to 6: workers that share the tokens of the same rows; before, there were none.
ALTER TABLE run ADD COLUMN context_parallel INTEGER NOT NULL DEFAULT 1;
