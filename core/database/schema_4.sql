-- SPDX-License-Identifier: Apache-2.0
-- From schema version 3 to 4: workers of each rank that share its tensors; before, each rank was one.
ALTER TABLE run ADD COLUMN tensor INTEGER NOT NULL DEFAULT 1;
ALTER TABLE plan ADD COLUMN tensor INTEGER NOT NULL DEFAULT 1;
