-- SPDX-License-Identifier: Apache-2.0
-- From schema version 4 to 5: workers of each rank that share its experts; before, all shared tensors.
ALTER TABLE run ADD COLUMN expert_parallel INTEGER NOT NULL DEFAULT 1;
