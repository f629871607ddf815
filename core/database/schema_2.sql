-- SPDX-License-Identifier: Apache-2.0
-- From schema version 1 to 2: means beside medians. NULL in what was measured before, where the median takes their place.
ALTER TABLE kernel_time ADD COLUMN mean_ns INTEGER;
ALTER TABLE task_time ADD COLUMN mean_ns INTEGER;
ALTER TABLE link_time ADD COLUMN mean_ns INTEGER;
