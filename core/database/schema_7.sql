-- SPDX-License-Identifier: Apache-2.0
-- From schema version 6 to 7: what each task waits for, as core/plan/plan.h has it (dep0 .. dep2: pp_task.dep, NULL for none; wrap: pp_plan.wraps).
-- plan.edges is the number of rows that v_task_edge has of the plan; NULL: it was stored without its edges.
ALTER TABLE plan ADD COLUMN edges INTEGER;
ALTER TABLE task ADD COLUMN dep0 INTEGER;
ALTER TABLE task ADD COLUMN dep1 INTEGER;
ALTER TABLE task ADD COLUMN dep2 INTEGER;
ALTER TABLE task ADD COLUMN dep_range INTEGER NOT NULL DEFAULT 0;
CREATE TABLE wrap (
    plan INTEGER NOT NULL REFERENCES plan (id),
    task INTEGER NOT NULL,
    needs INTEGER NOT NULL,
    PRIMARY KEY (plan, task, needs)
) WITHOUT ROWID;
